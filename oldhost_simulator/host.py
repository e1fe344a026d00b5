"""OldHost's rules, pure: an expected nonce, a ban, a journal, records. Time is an argument.

`decide` returns the answer to a call and the facts that follow from it, and changes nothing; `apply` applies a fact.
Only facts change the state. They are what the state file keeps: a restart applies them again, so what was answered and
what is remembered can't differ. Times are epoch seconds.

A call is judged in this order: ban · malformed · busy · replay · gap · rejected · applied.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, assert_never

from oldhost_simulator.wire import Answer, Call


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
    """What should not happen. A `ban` has its end; `whole_seconds`: whether the client gets it in whole seconds or in
    milliseconds.
    """

    incident: Literal["gap", "replay", "ban", "unban"]
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
    answer: Answer
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
    def __init__(self, *, first_nonce: int = 1, ban_seconds: float = 900.0) -> None:
        self.expected_nonce = first_nonce
        self.first_nonce = first_nonce
        self.ban_seconds = ban_seconds
        self.journal: list[Entry] = []
        self.incidents: list[Incident] = []
        self.records: dict[tuple[str, str, str], Entry] = {}
        self._ban: Incident | None = None
        self._standing: list[Entry] = []  # entries that no restored backup has undone, in order of nonce

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
            return Decision(Answer(403, {"error": "banned", "retry_after": self._retry_after(now)}))
        if call.problem is not None:
            return Decision(Answer(400, {"error": "malformed", "reason": call.problem}))
        busy_seconds = faults.busy_seconds(call)
        if busy_seconds is not None:
            return Decision(Answer(503, {"error": "busy", "retry_after": _plain(busy_seconds)}))
        if call.kind == "ask":
            return Decision(Answer(200, {"expected_nonce": self.expected_nonce}))
        return self._decide_sync(call, now, faults, rejection, late=late)

    def _decide_sync(
        self, call: Call, now: float, faults: FaultSource, rejection: Rejection | None, *, late: bool
    ) -> Decision:
        nonce, expected = call.nonce, self.expected_nonce
        assert nonce is not None, "a sync without a problem has a nonce"
        if nonce < expected:
            return self._decide_replay(call, now)
        if nonce > expected:
            gap = Incident(incident="gap", at=now, expected_nonce=expected, nonce=nonce, connection=call.connection)
            return Decision(Answer(400, {"error": "nonce_gap", "expected_nonce": expected}), (gap,))
        rejection = rejection or faults.rejection(call)
        if rejection is not None:
            after = expected + 1 if rejection.consume else expected
            body = {"error": "rejected", "reason": rejection.reason, "expected_nonce": after}
            return Decision(Answer(422, body), (_entry(call, now, after, late=late, reason=rejection.reason),))
        answer = Answer(200, {"nonce": nonce, "expected_nonce": expected + 1})
        return Decision(answer, (_entry(call, now, expected + 1, late=late),))

    def _decide_replay(self, call: Call, now: float) -> Decision:
        expected = self.expected_nonce
        replay = Incident(
            incident="replay", at=now, expected_nonce=expected, nonce=call.nonce, connection=call.connection
        )
        ban = self.ban(now, self.ban_seconds)
        body = {"error": "nonce_replay", "expected_nonce": expected, "retry_after": _plain(self.ban_seconds)}
        return Decision(Answer(400, body), (replay, ban))

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

    def restore(self, now: float, expected_nonce: int) -> Entry:
        """The host as it was when it expected that nonce. Raises ValueError if it never expected it."""
        if not self.first_nonce <= expected_nonce <= self.expected_nonce:
            span = f"{self.first_nonce} to {self.expected_nonce}"
            raise ValueError(f"a backup can only expect a nonce from {span}, not {expected_nonce}")
        return Entry(outcome="restored", nonce=expected_nonce, expected_nonce=expected_nonce, at=now)

    def facts_of(self, event: InjectedEvent, now: float) -> Iterator[Fact]:
        """Its facts, one after the other: each must be applied before the next is requested."""
        match event.name:
            case "ban":
                yield self.ban(now, self.ban_seconds if event.seconds is None else event.seconds)
            case "restore":
                yield self.restore(now, max(self.first_nonce, self.expected_nonce - event.back))
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
        match fact.outcome:
            case "applied" | "foreign":
                self._standing.append(fact)
                self._record(fact)
            case "restored":
                self._go_back(fact.expected_nonce)
            case "rejected":
                pass
            case _:
                assert_never(fact.outcome)

    def _apply_incident(self, incident: Incident) -> None:
        self.incidents.append(incident)
        if incident.incident == "ban":
            self._ban = incident
        elif incident.incident == "unban":
            self._ban = None

    def _record(self, entry: Entry) -> None:
        body = entry.body
        if body is not None:
            self.records[str(body.get("entity_type")), str(body.get("entity_id")), str(body.get("event_type"))] = entry

    def _go_back(self, expected_nonce: int) -> None:
        while self._standing and self._standing[-1].nonce >= expected_nonce:
            self._standing.pop()
        self.records = {}
        for entry in self._standing:
            self._record(entry)

    def count(self, incident: str) -> int:
        return sum(1 for one in self.incidents if one.incident == incident)


def _entry(call: Call, now: float, expected_nonce: int, *, late: bool, reason: str | None = None) -> Entry:
    assert call.nonce is not None
    return Entry(
        outcome="applied" if reason is None else "rejected",
        nonce=call.nonce,
        expected_nonce=expected_nonce,
        at=now,
        body=call.body,
        raw_sha256=call.raw_sha256,
        received_at=call.received_at,
        applied_at=now if reason is None else None,
        connection=call.connection,
        reason=reason,
        late=late,
    )


def _plain(seconds: float) -> float:
    """900.0 is written 900."""
    return int(seconds) if float(seconds).is_integer() else seconds
