"""Whether a host keeps what its driver claims, as far as questions tell: they change nothing there.

Logs on twice, and asks twice each time. What only a write shows (a repeated number, a rejection, a gap) is left to
`measurement.py`, for test hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from oldhost_sync.drivers.ambiguity import plan
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats, Resets
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    ConnectionInUse,
    End,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    ToldFate,
    Unlisted,
)
from oldhost_sync.oldhost.connection import Clock, HostConnection

# What is claimed, for people.
REPEATED = {
    Repeats.DONE_TWICE: "is done again",
    Repeats.PUNISHED: "is punished by a ban",
    Repeats.REFUSED: "is refused",
    Repeats.LAST_ANSWER: "gets its last answer again",
}
RESET = {
    Resets.NEVER: "never begin anew",
    Resets.SESSION: "begin anew with each connection",
    Resets.DAY: "begin anew each day",
}
REJECTION = {
    RejectionUses.YES: "uses its number",
    RejectionUses.NO: "leaves its number free",
    RejectionUses.SAYS: "says whether it uses its number",
}
# A key that no operation has.
NO_KEY = "oldhost-sync-driver-check-no-such-operation"


class Verdict(StrEnum):
    """What a finding says of a claim."""

    HOLDS = "holds"
    WRONG = "wrong"
    OPEN = "not checked"
    SEEN = "seen"  # nothing is claimed


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """`claim`: what is declared; `found`: what the host did. No word of the host's is in either."""

    subject: str
    claim: str
    found: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Way:
    """How the host is reached and asked. `connect` raises HostErrors."""

    connect: Callable[[], HostConnection]
    clock: Clock
    timeout_seconds: float

    def greeted(self) -> tuple[HostConnection, End]:
        """A connection, and what it said to the greeting. Raises HostErrors."""
        connection = self.connect()
        try:
            return connection, connection.greet(timeout_seconds=self.timeout_seconds, while_waiting=_go_on)
        except BaseException:
            connection.close()
            raise

    def exchange(self, connection: HostConnection, request: bytes) -> tuple[End, float]:
        """The answer, and the milliseconds until it was here. Raises HostErrors."""
        began = self.clock()
        connection.begin(request, timeout_seconds=self.timeout_seconds, while_waiting=_go_on)
        event = connection.finish(while_waiting=_go_on).event
        return event, 1000 * (self.clock() - began)


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection: what the greeting brought, and two readings of the expected number, if it can be asked."""

    ready: End
    readings: tuple[End, ...] = ()
    milliseconds: tuple[float, ...] = ()
    stays_open: bool = True
    outcome: End | None = None


def check_host(driver: Driver, way: Way) -> list[ClaimFinding]:
    """What two visits show. Raises HostErrors when the host can't be reached, or does not answer."""
    first = _visit(driver, way)
    return [*_findings(driver.capabilities, first, _visit(driver, way) if isinstance(first.ready, Ready) else None)]


def _visit(driver: Driver, way: Way) -> Visit:
    connection, ready = way.greeted()
    try:
        if not isinstance(ready, Ready):
            return Visit(ready)
        readings, milliseconds = [], []
        can, stays_open = driver.capabilities, True
        for _ in range(2 if can.expected is not Expects.NEVER else 0):
            event, took = way.exchange(connection, connection.wire.ask_expected(connection.at_ms()))
            readings.append(event)
            milliseconds.append(took)
            if not connection.is_alive():
                stays_open = False
                connection.close()
                connection, _ = way.greeted()
        outcome = _asked_outcome(can, way, connection, readings) if can.outcome is not AskedOutcomes.NEVER else None
        return Visit(ready, tuple(readings), tuple(milliseconds), stays_open, outcome)
    finally:
        connection.close()


def _asked_outcome(can: Capabilities, way: Way, connection: HostConnection, readings: list[End]) -> End:
    """The answer to a question for the outcome of the number before the expected one, or of a key that is none."""
    expected = next((event.nonce for event in readings if isinstance(event, Expected)), can.lowest + 1)
    question = connection.wire.ask_outcome(max(can.lowest, expected - 1), NO_KEY, connection.at_ms())
    return way.exchange(connection, question)[0]


def _findings(can: Capabilities, first: Visit, second: Visit | None) -> Iterator[ClaimFinding]:
    ready = first.ready
    if not isinstance(ready, Ready) or second is None:
        yield ClaimFinding("log-on", "the host is ready after it", told(ready), Verdict.WRONG)
        return
    yield ClaimFinding("log-on", "the host is ready after it", told(ready), Verdict.HOLDS)
    yield from _of_expected(can, ready, first, second)
    if first.outcome is not None:
        yield _of_outcome(can, first.outcome)
    yield from _of_incarnation(ready, second)
    for subject, claim in (
        ("a number that comes again", REPEATED[can.repeated]),
        ("a rejection", REJECTION[can.rejection_uses]),
        ("a number that is too high", "is refused" if can.gapless else "is taken"),
        ("numbers", _numbers(can)),
        ("an operation whose answer is lost", f"is decided by what is claimed: {plan(can).row}"),
    ):
        yield ClaimFinding(subject, claim, "only a write shows it", Verdict.OPEN)


def _of_expected(can: Capabilities, ready: Ready, first: Visit, second: Visit) -> Iterator[ClaimFinding]:
    if can.expected is Expects.NEVER:
        yield ClaimFinding("the expected number", "can't be asked", "the driver does not ask", Verdict.OPEN)
        return
    claim = "can be asked"
    readings = [*first.readings, *second.readings]
    wrong = [event for event in readings if not isinstance(event, Expected)]
    said = " · ".join(dict.fromkeys(told(event) for event in readings))
    yield ClaimFinding("the expected number", claim, said, Verdict.WRONG if wrong else Verdict.HOLDS)
    if wrong:
        return
    is_same = len(set(readings)) == 1
    found = (
        "four equal readings over two connections"
        if is_same
        else "it changed: another client writes, or a cache answers"
    )
    yield ClaimFinding(
        "the expected number", "stays while nobody writes", found, Verdict.HOLDS if is_same else Verdict.WRONG
    )
    if ready.expected is not None:
        agrees = Expected(ready.expected) == readings[0]
        found = f"the log-on says {ready.expected}"
        yield ClaimFinding(
            "the expected number", "is that of the log-on", found, Verdict.HOLDS if agrees else Verdict.WRONG
        )
    claim = f"proves that all numbers before it are {can.expected}"
    yield ClaimFinding("the expected number", claim, "only a rejection shows it", Verdict.OPEN)
    slowest = max(*first.milliseconds, *second.milliseconds)
    stays = first.stays_open and second.stays_open
    found = f"the slowest of four answers took {slowest:.0f} ms" if stays else "the host closed it after an answer"
    yield ClaimFinding("the connection", "stays open", found, Verdict.HOLDS if stays else Verdict.WRONG)


def _of_outcome(can: Capabilities, outcome: End) -> ClaimFinding:
    """A key that no operation has must not have been taken; any other answer is about some operation."""
    is_wrong = not isinstance(outcome, OutcomeTold) or (
        can.outcome is AskedOutcomes.BY_ID and outcome.fate not in {ToldFate.NOT_TAKEN, ToldFate.UNKNOWN}
    )
    claim = f"can be asked: {can.outcome.replace('_', ' ')}"
    return ClaimFinding("an outcome", claim, told(outcome), Verdict.WRONG if is_wrong else Verdict.HOLDS)


def _of_incarnation(ready: Ready, second: Visit) -> Iterator[ClaimFinding]:
    again = second.ready
    if isinstance(again, Ready) and (ready.incarnation or again.incarnation):
        is_same = again.incarnation == ready.incarnation
        found = "the same at two log-ons" if is_same else "another one at the second log-on: is it of the connection?"
        yield ClaimFinding(
            "the host's incarnation", "lasts until a restart", found, Verdict.HOLDS if is_same else Verdict.WRONG
        )


def _numbers(can: Capabilities) -> str:
    wrap = "never wrap" if can.modulus is None else f"go from {can.lowest} to {can.modulus - 1}, and then wrap"
    return f"{wrap}; {RESET[can.resets]}"


# Events that say the same each time.
_PLAIN = {
    Applied: "it is applied",
    Rejected: "it is rejected",
    Malformed: "refused, as it can't be read",
    Replay: "refused, as used before",
    OutOfRange: "it expects a number that can't be counted from",
    ConnectionInUse: "it serves another connection: stop what holds it (`oldhost-sync pause`), and try again",
}


def told(event: End) -> str:
    """What an event says, for people, in our own words."""
    match event:
        case Ready(expected, incarnation):
            said = "ready" + ("" if expected is None else f", and expects {expected}")
            said += ", and names its incarnation" if incarnation else ""
        case Expected(nonce):
            said = f"it expects {nonce}"
        case Gap(expected):
            said = f"refused as too high, {expected} is next"
        case Banned(retry_after):
            said = "it bans us" + ("" if retry_after is None else f" for {retry_after:g} s")
        case NoService(why=why) | Unlisted(why=why):
            said = why
        case OutcomeTold(fate, number):
            said = fate.replace("_", " ") + ("" if number is None else f", number {number}")
        case _:
            said = _PLAIN.get(type(event), f"it answers by {type(event).__name__.lower()}")
    return said


def _go_on() -> None:
    """Nobody has to hear from us meanwhile."""
