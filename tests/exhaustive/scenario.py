"""One short life of the writer with every kind of step in it, always the same, its IO calls numbered.

All three classes on several entities, a key that is coalesced, a no-op, a rejection that uses its nonce up and one that
does not, a ban, a worker killed in its session (takeover), continue-as-new, an operator's discard, a submitted signal,
an emergency that other operations give way to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kinds_of_host import kind_named
from tests.simulation.hub import Process
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Shape, Verdict
from tests.simulation.world import World

SEED = 4
SHAPE = Shape(
    changes=12, minutes=1.5, entities=3, debounce_s=2.0, ban_s=10.0, latency_ms=40, events_suggested=130, eagerness=0.0,
    relays=1,
)  # fmt: skip
# Faults happen before this; then everything is well again.
FAULTY_S = 45.0

# When, entity type, entity, event type, payload, way.
CHANGES = (
    (1.0, "unit", "a", "unit_status_changed", {"status": "Dirty"}, "api"),
    (1.5, "unit", "a", "unit_status_changed", {"status": "Clean"}, "api"),
    (2.0, "unit", "b", "booking_created", {"number": "1"}, "api"),
    (2.2, "unit", "b", "booking_created", {"number": "refused"}, "api"),
    (2.4, "unit", "b", "checked_in", {"number": "held"}, "api"),
    (3.0, "lock", "a", "lock_emergency", {"number": "refused at once"}, "api"),
    (5.0, "unit", "a", "guest_locked_out", {"number": "2"}, "api"),
    (8.0, "unit", "c", "rate_changed", {"rate": "9"}, "signal"),
    (4.4, "unit", "a", "unit_status_changed", {"status": "Clean"}, "api"),
    (12.0, "unit", "a", "unit_status_changed", {"status": "Clean"}, "api"),
    (14.0, "unit", "c", "door_code_changed", {"code": "1234"}, "api"),
    (14.2, "unit", "a", "door_code_changed", {"code": "5678"}, "api"),
    (30.0, "unit", "b", "rate_changed", {"rate": "8"}, "api"),
    (32.3, "unit", "d", "checked_in", {"number": "3"}, "api"),
    (32.3, "unit", "d", "booking_created", {"number": "4"}, "api"),
    (32.3, "unit", "c", "booking_created", {"number": "5"}, "api"),
    (32.3, "unit", "c", "checked_in", {"number": "6"}, "api"),
    (32.3, "unit", "d", "checked_out", {"number": "8"}, "api"),
)
# When this unit is first on the wire, an emergency of another comes by signal, with older changes in the same send.
GIVES_WAY = "d"
URGENT = Wish("key-urgent", "unit", "c", "guest_locked_out", {"number": "7", "note": MARKER}, "signal")
BAN_AT_S = 17.0
# When OldHost has applied this one, and before it could answer, the worker dies that sent it.
FATAL = ("a", "door_code_changed")


@dataclass
class NumberedFaults:
    """Calls are counted; those in `plan` fail. `persistent`: and all later ones of the same kind and role as well."""

    plan: Mapping[int, str]
    persistent: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)
    fired: list[int] = field(default_factory=list)
    on: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    _stuck: dict[tuple[str, str], str] = field(default_factory=dict)

    def at(self, kind: str, process: Process, detail: str = "") -> str:
        if not self.on:
            return ""
        number = len(self.calls)
        self.calls.append((kind, f"{process.role} {detail}".strip()))
        mode = self.plan.get(number, "")
        if mode:
            self.fired.append(number)
            if self.persistent:
                self._stuck[kind, process.role] = mode
        return mode or self._stuck.get((kind, process.role), "")


class Scenario(World):
    """The fixed life; `play` gives its verdict."""

    def __init__(self, faults: NumberedFaults, host: str = "") -> None:
        super().__init__(SEED, shape=SHAPE, faults=faults, kind=kind_named(host))
        self._fatal = True
        self._urgent = True
        self.settled_at_call: dict[int, int] = {}  # by nonce
        self.database.after_commit.append(self._note_settled)

    def play(self) -> Verdict:
        self.begin()
        for number, (at, entity_type, entity_id, event_type, payload, way) in enumerate(CHANGES):
            wish = Wish(f"key-{number}", entity_type, entity_id, event_type, {**payload, "note": MARKER}, way)
            self.hub.after(at, lambda wish=wish: self.applications.want(wish))  # type: ignore[misc]
        self.oldhost.faults.switch_on(
            {
                "name": "reject",
                "label": "consuming",
                "next": 1,
                "rule": {"field": "payload.number", "equals": "refused"},
            }
        )
        self.oldhost.faults.switch_on(
            {
                "name": "reject",
                "label": "giving back",
                "next": 1,
                "consume": False,
                "rule": {"field": "payload.number", "equals": "refused at once"},
            }
        )
        self.hub.after(BAN_AT_S, self.ban)
        self._go_on_for(FAULTY_S)
        return self.heal()

    def _fact(self, fact: Any) -> None:
        super()._fact(fact)
        body = getattr(fact, "body", None)
        if self._urgent and self.faults.on and body and body["entity_id"] == GIVES_WAY:
            self._urgent = False
            wish = replace(URGENT, answers=[])
            self.hub.soon(lambda: self.applications.want(wish))
        if self._fatal and self.faults.on and body and (body["entity_id"], body["event_type"]) == FATAL:
            self._fatal = False
            for worker in [one for one in self.workers if one.sessions._sessions]:
                worker.process.kill()

    def _note_settled(self) -> None:
        for (nonce,) in self.database.rows("SELECT nonce FROM nonce_requests WHERE status IN ('APPLIED', 'FAILED')"):
            self.settled_at_call.setdefault(nonce, len(self.faults.calls))


@dataclass(frozen=True, slots=True)
class Case:
    """Which calls fail and how. `host`: its kind, if it is another one than OldHost."""

    plan: tuple[tuple[int, str], ...]
    persistent: bool = False
    host: str = ""

    def __str__(self) -> str:
        faults = " and ".join(f"call {number} {mode}" for number, mode in self.plan)
        return f"{faults}{' from then on' if self.persistent else ''}"


def play(case: Case) -> tuple[Verdict, Scenario]:
    scenario = Scenario(NumberedFaults(dict(case.plan), case.persistent), case.host)
    return scenario.play(), scenario
