"""OldHost's rules, pure: an expected nonce, a ban, a journal, records. Time is an argument.

`decide` returns the verdict on a call and the facts that follow from it, and changes nothing; `apply` applies a fact.
Only facts change the state. They are what the state file keeps: a restart applies them again, so what was answered and
what is remembered can't differ. Times are epoch seconds.

A call is judged in this order: ban · malformed · busy · replay · gap · rejected · applied.

A nonce of ours only rises. The number that a client sees is as far from `lowest` as the nonce is from where the host
began to count; with a modulus it comes around (`Behaviour`).
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, assert_never

from oldhost_simulator.behaviour import OLDHOST, Behaviour
from oldhost_simulator.call import Call
from oldhost_simulator.verdicts import (
    Applied,
    Banned,
    Busy,
    Expected,
    Gap,
    Malformed,
    Outcome,
    Ready,
    Rejected,
    Replay,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the journal: an operation applied or rejected, a foreign write, a restored backup.

    `expected_nonce`: the one after it. `rejected` has no `applied_at`; `restored` has only nonces and a time.
    """

    outcome: Literal["applied", "rejected", "foreign", "restored"]
    nonce: int
    expected_nonce: int
    at: float
    body: dict[str, Any] | None = None
    raw_sha256: str | None = None
    received_at: float | None = None
    applied_at: float | None = None
    connection: int | None = None
    reason: str | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What should not happen, or seldom does. A `ban` has its end; `whole_seconds`: whether the client gets it in whole
    seconds or in milliseconds. `reset`: from here on numbers begin at the lowest.
    """

    incident: Literal["gap", "replay", "ban", "unban", "reset"]
    at: float
    expected_nonce: int
    nonce: int | None = None
    connection: int | None = None
    until: float | None = None
    whole_seconds: bool = True


Fact = Entry | Incident


def fact_to_json(fact: Fact) -> dict[str, Any]:
    return {field.name: getattr(fact, field.name) for field in dataclasses.fields(fact)}


def fact_from_json(data: dict[str, Any]) -> Fact:
    """Raises TypeError or KeyError if `data` is not a fact of this version."""
    return Incident(**data) if "incident" in data else Entry(**data)


@dataclass(frozen=True, slots=True)
class Rejection:
    """An operation refused for its content; `consume` says whether its nonce is used up."""

    reason: str
    consume: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    facts: tuple[Fact, ...] = ()


InjectedEventName: TypeAlias = Literal["ban", "restore", "foreign_write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedEvent:
    """What happens to the host just before it judges a call. `seconds` None: a ban of the usual length."""

    name: InjectedEventName
    seconds: float | None = None
    back: int = 1
    count: int = 1


class FaultSource(Protocol):
    """How a host may misbehave within the protocol (docs/protocol.md)."""

    def injected_events(self, call: Call) -> Sequence[InjectedEvent]: ...

    def busy_seconds(self, call: Call) -> float | None: ...

    def rejection(self, call: Call) -> Rejection | None: ...


class Host:
    def __init__(self, *, first_nonce: int = 1, ban_seconds: float = 900.0, behaviour: Behaviour = OLDHOST) -> None:
        self.expected_nonce = first_nonce
        self.first_nonce = first_nonce
        self.ban_seconds = ban_seconds
        self.behaviour = behaviour
        self.journal: list[Entry] = []
        self.incidents: list[Incident] = []
        self.records: dict[tuple[str, str, str], Entry] = {}
        self.incarnation = ""
        self._ban: Incident | None = None
        self._standing: list[Entry] = []  # entries that no restored backup has undone, in order of nonce
        self._lowest, self._numbers = behaviour.lowest, behaviour.numbers
        self._lowest_nonce = behaviour.lowest  # the one whose number is the lowest
        self._counts_since: float | None = None  # when it last began to count anew
        self._last: Entry | None = None  # whose answer it could give again

    def started(self, now: float) -> None:
        """It has just been switched on, with its records from before: what was only in its memory is gone."""
        self.incarnation = f"{now:.3f}" if self.behaviour.incarnation else ""
        self._last = None

    # -------------------------------------------------------------------------------------------------- numbers

    def number(self, nonce: int) -> int:
        """As clients see it."""
        distance = max(0, nonce - self._lowest_nonce)
        return self._lowest + (distance if self._numbers is None else distance % self._numbers)

    def _nonce(self, number: int) -> int:
        """Of those with this number the one nearest to what is expected."""
        distance, numbers = number - self.number(self.expected_nonce), self._numbers
        if numbers is not None:
            distance = (distance + numbers // 2) % numbers - numbers // 2
        return self.expected_nonce + distance

    def _told(self, nonce: int) -> int | None:
        """What an answer says that is expected next."""
        return None if self.behaviour.expected == "never" else self.number(nonce)

    def _lagging(self, now: float) -> int:
        """The number that it wanted next a while ago."""
        if not self.behaviour.lags_seconds:
            return self.number(self.expected_nonce)
        then = now - self.behaviour.lags_seconds
        return self.number(next((e.expected_nonce for e in reversed(self.journal) if e.at <= then), self.first_nonce))

    # ------------------------------------------------------------------------------------------------- deciding

    def banned_until(self, now: float) -> float | None:
        """Epoch seconds, or None when there is no ban."""
        if self._ban is None or self._ban.until is None or now >= self._ban.until:
            return None
        return self._ban.until

    def decide(
        self, call: Call, now: float, faults: FaultSource, *, late: bool = False, rejection: Rejection | None = None
    ) -> Decision:
        """`rejection`: why this operation is rejected, if it comes to that."""
        if self.banned_until(now) is not None:
            return Decision(Banned(self._retry_after(now)))
        problem = call.problem or self._problem(call)
        if problem is not None:
            return Decision(Malformed(problem))
        busy_seconds = faults.busy_seconds(call)
        if busy_seconds is not None:
            return Decision(Busy(_plain(busy_seconds)))
        match call.kind:
            case "ask":
                return Decision(Expected(self._lagging(now)))
            case "outcome":
                return Decision(self._outcome(call))
            case "logon":
                return self._decide_logon(now)
        return self._decide_sync(call, now, faults, rejection, late=late)

    def _problem(self, call: Call) -> str | None:
        """What a host of this kind can't do with a call that is well-formed."""
        can = self.behaviour
        if call.kind == "ask" and can.expected == "never":
            return "it does not tell which number it expects"
        if call.kind == "outcome":
            asked = {"by_number": call.nonce is not None, "by_id": call.key is not None, "last": True}
            return None if asked.get(can.outcome) else "it can't be asked for that outcome"
        if call.nonce is not None and can.modulus is not None and not can.lowest <= call.nonce < can.modulus:
            return f"numbers go from {can.lowest} to {can.modulus - 1}"
        return None

    def _decide_logon(self, now: float) -> Decision:
        incarnation = self.incarnation
        if self.behaviour.resets == "session":
            expected = self.behaviour.lowest if self.behaviour.logon_expected else None
            return Decision(Ready(expected, incarnation), (self.reset(now),))
        return Decision(Ready(self._lagging(now) if self.behaviour.logon_expected else None, incarnation))

    def _decide_sync(
        self, call: Call, now: float, faults: FaultSource, rejection: Rejection | None, *, late: bool
    ) -> Decision:
        assert call.nonce is not None, "a sync without a problem has a nonce"
        nonce, expected = self._nonce(call.nonce), self.expected_nonce
        if nonce < expected and self.behaviour.repeated != "done_twice":
            return self._decide_repeated(call, nonce, now)
        if nonce > expected and self.behaviour.gapless:
            gap = Incident(incident="gap", at=now, expected_nonce=expected, nonce=nonce, connection=call.connection)
            return Decision(Gap(self.number(nonce), self.number(expected)), (gap,))
        rejection = rejection or faults.rejection(call)
        if rejection is None:
            entry = self._entry(call, nonce, now, used=True, late=late)
            return Decision(self._verdict(entry), (entry,))
        used = {"yes": True, "no": False}.get(self.behaviour.rejection_uses, rejection.consume)
        entry = self._entry(call, nonce, now, used=used, late=late, reason=rejection.reason)
        return Decision(self._verdict(entry), (entry,))

    def _decide_repeated(self, call: Call, nonce: int, now: float) -> Decision:
        expected, last = self.expected_nonce, self._last
        if self.behaviour.repeated == "last_answer" and last is not None and last.nonce == nonce:
            return Decision(self._verdict(last))
        replay = Incident(incident="replay", at=now, expected_nonce=expected, nonce=nonce, connection=call.connection)
        if self.behaviour.repeated != "punished":
            return Decision(Replay(self.number(nonce), self._told(expected), None), (replay,))
        verdict = Replay(self.number(nonce), self._told(expected), _plain(self.ban_seconds))
        return Decision(verdict, (replay, self.ban(now, self.ban_seconds)))

    def _verdict(self, entry: Entry) -> Verdict:
        """What was answered to the operation of this entry."""
        number, expected = self.number(entry.nonce), self._told(entry.expected_nonce)
        if entry.outcome != "rejected":
            return Applied(number, expected)
        return Rejected(number, entry.reason or "", expected, self._used(entry))

    def _used(self, rejected: Entry) -> bool | None:
        """What is said of it; None: nothing is."""
        return rejected.expected_nonce > rejected.nonce if self.behaviour.rejection_uses == "says" else None

    def _outcome(self, call: Call) -> Outcome:
        nonce = None if call.nonce is None else self._nonce(call.nonce)
        for entry in reversed(self._standing):
            key = entry.body.get("idempotency_key") if entry.body is not None else None
            if {"by_number": entry.nonce == nonce, "by_id": key == call.key, "last": True}[self.behaviour.outcome]:
                if entry.outcome == "rejected":
                    return Outcome("rejected", self.number(entry.nonce), key, entry.reason, self._used(entry))
                return Outcome("applied", self.number(entry.nonce), key)
        if nonce is not None and nonce < max(self.first_nonce, self._lowest_nonce):
            return Outcome("unknown", call.nonce)
        return Outcome("not_taken", call.nonce, call.key)

    def _entry(self, call: Call, nonce: int, now: float, *, used: bool, late: bool, reason: str | None = None) -> Entry:
        return Entry(
            outcome="applied" if reason is None else "rejected",
            nonce=nonce,
            expected_nonce=max(self.expected_nonce, nonce + 1) if used else self.expected_nonce,
            at=now,
            body=call.body,
            raw_sha256=call.raw_sha256,
            received_at=call.received_at,
            applied_at=now if reason is None else None,
            connection=call.connection,
            reason=reason,
            late=late,
        )

    def _retry_after(self, now: float) -> float:
        """Rounded up, so that a client that waits that long is never early: to whole seconds, as in the protocol, or to
        milliseconds for a ban whose length is not a whole number of seconds (a run in compressed time).
        """
        assert self._ban is not None
        assert self._ban.until is not None
        left = self._ban.until - now
        return math.ceil(left) if self._ban.whole_seconds else math.ceil(left * 1000) / 1000

    # ---------------------------------------------------------------------------- what people do to OldHost

    def ban(self, now: float, seconds: float) -> Incident:
        return Incident(
            incident="ban",
            at=now,
            expected_nonce=self.expected_nonce,
            until=now + seconds,
            whole_seconds=float(seconds).is_integer(),
        )

    def unban(self, now: float) -> Incident:
        return Incident(incident="unban", at=now, expected_nonce=self.expected_nonce)

    def foreign_write(self, now: float, body: dict[str, Any] | None = None) -> Entry:
        nonce = self.expected_nonce
        return Entry(outcome="foreign", nonce=nonce, expected_nonce=nonce + 1, at=now, applied_at=now, body=body)

    def reset(self, now: float) -> Incident:
        """From here on it counts from the lowest number."""
        return Incident(incident="reset", at=now, expected_nonce=self.expected_nonce)

    def due(self, now: float) -> tuple[Fact, ...]:
        """What time alone has brought: at the first call of a day, numbers that begin anew."""
        if self.behaviour.resets != "day":
            return ()
        known = [at for at in (self._counts_since, self.journal[-1].at if self.journal else None) if at is not None]
        is_new_day = bool(known) and self.behaviour.day(max(known)) < self.behaviour.day(now)
        return (self.reset(now),) if is_new_day else ()

    def restore(self, now: float, expected_nonce: int) -> Entry:
        """The host as it was when it expected that nonce. Raises ValueError if it never expected it, or only before it
        began to count anew.
        """
        oldest = max(self.first_nonce, self._lowest_nonce)
        if not oldest <= expected_nonce <= self.expected_nonce:
            span = f"{oldest} to {self.expected_nonce}"
            raise ValueError(f"a backup can only expect a nonce from {span}, not {expected_nonce}")
        return Entry(outcome="restored", nonce=expected_nonce, expected_nonce=expected_nonce, at=now)

    def facts_of(self, event: InjectedEvent, now: float) -> Iterator[Fact]:
        """Its facts, one after the other: each must be applied before the next is requested."""
        match event.name:
            case "ban":
                yield self.ban(now, self.ban_seconds if event.seconds is None else event.seconds)
            case "restore":
                yield self.restore(now, max(self.first_nonce, self._lowest_nonce, self.expected_nonce - event.back))
            case "foreign_write":
                for _ in range(event.count):
                    yield self.foreign_write(now)
            case _:
                assert_never(event.name)

    # ------------------------------------------------------------------------------------------------- applying

    def apply(self, fact: Fact) -> None:
        """The only method that changes the state."""
        if isinstance(fact, Incident):
            self._apply_incident(fact)
            return
        self.journal.append(fact)
        self.expected_nonce = fact.expected_nonce
        self._last = None if fact.outcome == "restored" else fact
        match fact.outcome:
            case "applied" | "foreign" | "rejected":
                self._standing.append(fact)
                self._record(fact)
            case "restored":
                self._go_back(fact.expected_nonce)
            case _:
                assert_never(fact.outcome)

    def _apply_incident(self, incident: Incident) -> None:
        self.incidents.append(incident)
        if incident.incident == "ban":
            self._ban = incident
        elif incident.incident == "unban":
            self._ban = None
        elif incident.incident == "reset":
            self._lowest_nonce, self._counts_since, self._last = incident.expected_nonce, incident.at, None

    def _record(self, entry: Entry) -> None:
        body = entry.body
        if body is not None and entry.outcome != "rejected":
            self.records[str(body.get("entity_type")), str(body.get("entity_id")), str(body.get("event_type"))] = entry

    def _go_back(self, expected_nonce: int) -> None:
        self._standing = [entry for entry in self._standing if entry.nonce < expected_nonce]
        self.records = {}
        for entry in self._standing:
            self._record(entry)

    def count(self, incident: str) -> int:
        return sum(1 for one in self.incidents if one.incident == incident)


def _plain(seconds: float) -> float:
    """900.0 is written 900."""
    return int(seconds) if float(seconds).is_integer() else seconds
