"""What a test host is really like: how quick, how late, what it does to numbers that come again or are too high, to
rejections, and to input that makes no sense.

It writes operations and uses numbers up, and it provokes a ban on purpose: never on a host that matters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from oldhost_sync.driver_kit.host_check import REJECTION, REPEATED, ClaimFinding, Verdict, Way, told
from oldhost_sync.drivers.capabilities import Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.events import Applied, Banned, End, Expected, Gap, Ready, Rejected, Replay, Unlisted
from oldhost_sync.oldhost.connection import HostConnection
from oldhost_sync.oldhost.errors import HostError, Silent, Unreadable

OPERATIONS = 20
# Operations whose answer nobody waits for.
LATE_OPERATIONS = 3
LATE_SECONDS_MAX = 10.0
IDLE_SECONDS = 5.0
POLL_SECONDS = 0.05
# While we are banned.
BAN_POLL_SECONDS = 1.0
CONNECT_TRIES = 40


class NoCount(Exception):  # noqa: N818 - says what is missing
    """The host can't be measured further: it does not say which number is next, or takes no operation of ours."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """`good`: makes the body of an operation that the host applies, another one for each number; `bad`: one that it
    rejects for its content; None: nobody knows one.
    """

    good: Callable[[int], bytes]
    bad: bytes | None = None


@dataclass(slots=True)
class Measured:
    """Times as they were seen; None: not seen. `closed_after`: answers; None: it stayed open for all of them."""

    operations_ms: list[float] = field(default_factory=list)
    asks_ms: list[float] = field(default_factory=list)
    late_seconds: list[float] = field(default_factory=list)
    closed_after: int | None = None
    closed_idle: bool = False
    rejection_uses: RejectionUses | None = None
    gapless: bool | None = None
    repeated: Repeats | None = None
    ban_seconds: float | None = None
    findings: list[ClaimFinding] = field(default_factory=list)


@dataclass(slots=True)
class HostMeasurement:
    """`rest`: waits for seconds; `tell`: what is being measured, for whoever waits;
    `ban_seconds_max`: how long the end of a ban is waited for.
    """

    driver: Driver
    way: Way
    bodies: Bodies
    rest: Callable[[float], None]
    tell: Callable[[str], None]
    ban_seconds_max: float
    found: Measured = field(default_factory=Measured)

    def run(self) -> Measured:
        """Raises HostErrors when the host can't be reached any more, and NoCount."""
        if self._can.expected is Expects.NEVER:
            raise NoCount("it can't be asked which number is next, and without that nothing can be measured")
        for what, step in (
            ("how long answers take", self._latency),
            ("whether an idle connection stays open", self._idle),
            ("whether a rejection uses its number", self._rejection),
            ("a number that is too high", self._gap),
            ("input that makes no sense", self._odd_input),
            ("operations that are applied late", self._late),
            ("a number that comes again, and the ban that may follow", self._repeat),
        ):
            self.tell(what)
            step()
        return self.found

    # ------------------------------------------------------------------------------------------------- measurements

    def _latency(self) -> None:
        with self._connected() as connection:
            for done in range(OPERATIONS):
                number = self._next(connection)
                event, took = self._send(connection, number, self.bodies.good(number))
                if not isinstance(event, Applied):
                    raise NoCount(f"operation {number} is not applied: {told(event)}; give a --payload that it takes")
                self.found.operations_ms.append(took)
                if not connection.is_alive():
                    self.found.closed_after = done + 1
                    break
        operations, asks = self.found.operations_ms, self.found.asks_ms
        self._note("an operation", "", f"{_spread(operations)}; a question: {_spread(asks)}")
        closed = self.found.closed_after
        stays = f"after {len(operations)} operations" if closed is None else f"closed after {closed}"
        self._note("the connection", "stays open", stays, holds=closed is None)

    def _idle(self) -> None:
        with self._connected() as connection:
            self._next(connection)
            self.rest(IDLE_SECONDS)
            self.found.closed_idle = not connection.is_alive()
        found = "closed" if self.found.closed_idle else "open"
        self._note("the connection", f"outlasts {IDLE_SECONDS:g} idle seconds", found, holds=not self.found.closed_idle)

    def _rejection(self) -> None:
        can = self._can
        if self.bodies.bad is None:
            self._note("a rejection", REJECTION[can.rejection_uses], "give --bad-payload to see one")
            return
        with self._connected() as connection:
            number = self._next(connection)
            event, _ = self._send(connection, number, self.bodies.bad)
        after = self._next_later()
        if isinstance(event, Rejected):
            self.found.rejection_uses = RejectionUses.NO if after == number else RejectionUses.YES
            is_told = event.consumed is (after != number)
            holds = is_told and can.rejection_uses in {RejectionUses.SAYS, self.found.rejection_uses}
            used = "used" if after != number else "free"
            self._note("a rejection", REJECTION[can.rejection_uses], f"it is {used} after one", holds=holds)
        else:
            claim = REJECTION[can.rejection_uses]
            found = "its body is no bad one" if isinstance(event, Applied) else "no rejection"
            self._note("a rejection", claim, f"{found}: {told(event)}, and then it expects {after}")

    def _gap(self) -> None:
        with self._connected() as connection:
            number = self._next(connection)
            high = self._moved(number, 5)
            event, _ = self._send(connection, high, self.bodies.good(high))
        after = self._next_later()
        self.found.gapless = isinstance(event, Gap) or (not isinstance(event, Applied) and after == number)
        claim = "is refused" if self._can.gapless else "is taken"
        found = f"{told(event)}, and then it expects {after}"
        self._note("a number that is too high", claim, found, holds=self.found.gapless is self._can.gapless)

    def _odd_input(self) -> None:
        good = self.bodies.good(0)
        for what, body in (
            ("64 zero bytes", None),
            ("an operation with an empty body", b""),
            ("an operation with half a body", good[: len(good) // 2]),
        ):
            with self._connected() as connection:
                number = self._next(connection)
                request = connection.wire.operation(number, body or b"", connection.at_ms())
                found = self._answer_to(connection, b"\0" * 64 if body is None else request)
            after = self._next_later()
            is_used = "" if after == number else f", and its number is used: it expects {after}"
            self._note(what, "uses no number", f"{found}{is_used}", holds=after == number)

    def _late(self) -> None:
        """Written, and the connection closed at once: when does it count?"""
        for _ in range(LATE_OPERATIONS):
            with self._connected() as connection:
                number = self._next(connection)
                request = connection.wire.operation(number, self.bodies.good(number), connection.at_ms())
                connection.begin(request, timeout_seconds=self.way.timeout_seconds, while_waiting=lambda: None)
            since = self.way.clock()
            while self._next_later() == number and self.way.clock() - since < LATE_SECONDS_MAX:
                self.rest(POLL_SECONDS)
            seconds = self.way.clock() - since
            if seconds < LATE_SECONDS_MAX:
                self.found.late_seconds.append(seconds)
        times = ", ".join(f"{seconds:.1f} s" for seconds in self.found.late_seconds) or "never"
        self._note("an operation whose connection is gone", "", f"applied after: {times}")

    def _repeat(self) -> None:
        with self._connected() as connection:
            number = self._next(connection)
            before = self._moved(number, -1)
            event, _ = self._send(connection, before, self.bodies.good(before))
        self.found.ban_seconds = self._ban()
        match event:
            case Banned() | Replay() if self.found.ban_seconds is not None:
                repeated = Repeats.PUNISHED
            case Replay():
                repeated = Repeats.REFUSED
            case Applied():
                repeated = Repeats.LAST_ANSWER if self._next_later() == number else Repeats.DONE_TWICE
            case _:
                repeated = Repeats.DONE_TWICE
        self.found.repeated = repeated
        found = told(event) + (": look there whether it was done twice" if isinstance(event, Applied) else "")
        claim = REPEATED[self._can.repeated]
        self._note("a number that comes again", claim, found, holds=repeated is self._can.repeated)

    def _ban(self) -> float | None:
        """How long we are banned from now on, at least; None: we are not."""
        since, seconds = self.way.clock(), None
        while True:
            with self._connected(is_ready=False) as connection:
                event = self._ask(connection)[0]
            if not isinstance(event, Banned):
                break
            seconds = self.way.clock() - since
            if seconds >= self.ban_seconds_max:
                seconds += event.retry_after or 0.0
                self._note("the ban", "", f"{seconds:.0f} s or more; its end was not waited for")
                return seconds
            self.rest(BAN_POLL_SECONDS)
        if seconds is not None:
            seconds = self.way.clock() - since
            self._note("the ban", "", f"{seconds:.0f} s")
        return seconds

    # ---------------------------------------------------------------------------------------------------- the host

    @property
    def _can(self) -> Capabilities:
        return self.driver.capabilities

    @contextmanager
    def _connected(self, *, is_ready: bool = True) -> Iterator[HostConnection]:
        """Tries for a while: a host with one connection has to notice first that the last one is gone."""
        for left in range(CONNECT_TRIES, -1, -1):
            connection, event = self.way.greeted()
            if isinstance(event, Ready) or not is_ready:
                break
            connection.close()
            if not left:
                raise NoCount(told(event))
            self.rest(POLL_SECONDS)
        try:
            yield connection
        finally:
            connection.close()

    def _next(self, connection: HostConnection) -> int:
        """The number that is next. Raises NoCount."""
        for _ in range(CONNECT_TRIES):
            event, took = self._ask(connection)
            if isinstance(event, Expected):
                self.found.asks_ms.append(took)
                return event.nonce
            if not connection.is_alive():
                break
            self.rest(POLL_SECONDS)
        raise NoCount(told(event))

    def _next_later(self) -> int:
        """The number that is next, over a new connection."""
        for _ in range(CONNECT_TRIES):
            with self._connected() as connection:
                try:
                    return self._next(connection)
                except NoCount:
                    self.rest(POLL_SECONDS)
        raise NoCount("it does not say which number is next")

    def _ask(self, connection: HostConnection) -> tuple[End, float]:
        return self.way.exchange(connection, connection.wire.ask_expected(connection.at_ms()))

    def _send(self, connection: HostConnection, number: int, body: bytes) -> tuple[End, float]:
        """Raises HostErrors. What the driver's claims rule out is no answer, and ends the connection."""
        try:
            return self.way.exchange(connection, connection.wire.operation(number, body, connection.at_ms()))
        except Unreadable as error:
            return Unlisted(str(error)), 0.0

    def _answer_to(self, connection: HostConnection, data: bytes) -> str:
        """What comes back for any bytes."""
        try:
            event, _ = self.way.exchange(connection, data)
        except Silent:
            return "no answer"
        except HostError:
            return "it closes the connection, or answers what can't be read"
        return told(event)

    def _moved(self, number: int, step: int) -> int:
        can = self._can
        if can.modulus is None:
            return max(can.lowest, number + step)
        return can.lowest + (number - can.lowest + step) % (can.modulus - can.lowest)

    def _note(self, subject: str, claim: str, found: str, *, holds: bool | None = None) -> None:
        unclaimed = Verdict.OPEN if claim else Verdict.SEEN
        verdict = unclaimed if holds is None else Verdict.HOLDS if holds else Verdict.WRONG
        self.found.findings.append(ClaimFinding(subject, claim, found, verdict))


def _spread(milliseconds: list[float]) -> str:
    if not milliseconds:
        return "none"
    return f"{statistics.median(milliseconds):.0f} ms, the slowest {math.ceil(max(milliseconds))} ms"
