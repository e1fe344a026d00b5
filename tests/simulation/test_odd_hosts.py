"""Hosts that behave oddly: nothing is lost, and every stop is told within 30 s (I12).

The simulator's own switchboard on the simulation's wire, so that minutes of trouble take a second. Each mode is on for
two minutes under a steady load; then the host is as it should be, and everything must come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.simulation.faults import NoFaults
from tests.simulation.hub import EPOCH
from tests.simulation.invariants import look_at_dead_letters
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Shape, Verdict
from tests.simulation.world import World

TOLD_WITHIN_S = 30.0
LOOK_EVERY_S = 1.0
CLOSED_WITHIN_S = 60.0
QUIET_S, ODD_S = 20.0, 120.0
SHAPE = Shape(
    changes=60, minutes=(QUIET_S + ODD_S) / 60, entities=6, debounce_s=2.0, ban_s=20.0, latency_ms=100,
    events_suggested=2000, eagerness=0.0, workers=1, relays=1,
)  # fmt: skip


@dataclass(frozen=True)
class Mode:
    """`faults` at the host for as long as it is odd. `bans`: it is banned as it begins. `repeats`:
    a replay is no fault of ours."""

    name: str
    faults: tuple[dict[str, Any], ...]
    bans: bool = False
    repeats: bool = False
    closes: bool = False  # a session is opened anew as it begins
    tells: str = ""  # the kind of alert that must have been open

    def __str__(self) -> str:
        return self.name


class OddWorld(World):
    """One odd host. `silent_s`: the longest time without a fate and without an open alert while
    something urgent waited."""

    def __init__(self, mode: Mode, *, resolve_with: str = "") -> None:
        super().__init__(1, shape=SHAPE, faults=NoFaults())
        self.mode = mode
        self.silent_s = 0.0
        self.operations_while_odd = 0
        self.outcomes_seen = 0
        self.told: dict[str, None] = {}
        self.left_open: list[str] = []
        self._resolve_with = resolve_with
        self._over_since = 0.0

    def play(self) -> Verdict:
        self.begin()
        self.operators.resolve_with = self._resolve_with
        self._plan_changes()
        self.hub.process("watcher").spawn(self._watch)
        self._go_on_for(QUIET_S)
        self._begin_to_be_odd()
        before = len(self.oldhost.applied())
        self._go_on_for(ODD_S)
        self.operations_while_odd = len(self.oldhost.applied()) - before
        return self.heal()

    def _plan_changes(self) -> None:
        """And one when the trouble is over: only an answer to it shows that answers come again."""
        super()._plan_changes()
        wish = self.wish(SHAPE.changes, self.hub.random)
        self.hub.at(self.hub.now + QUIET_S + ODD_S + LOOK_EVERY_S, lambda: self.applications.want(wish))

    def _has_settled(self) -> bool:
        """Over once every alert of the trouble is closed, too."""
        if not super()._has_settled():
            return False
        self.left_open = [
            kind
            for (kind,) in self.database.rows("SELECT kind FROM alerts WHERE is_open = 1 AND severity = 'critical'")
        ]
        self._over_since = self._over_since or self.hub.now
        return not self.left_open or self.hub.now > self._over_since + CLOSED_WITHIN_S

    def _begin_to_be_odd(self) -> None:
        if self.mode.repeats:
            self.meddle("forward")
        for fault in self.mode.faults:
            self.oldhost.faults.switch_on(fault)
        if self.mode.bans:
            self.ban()
        if self.mode.closes:
            self.oldhost.hang_up()

    def _watch(self) -> None:
        """Measures silence in virtual seconds."""
        last = self.hub.now
        while True:
            self.hub.sleep(LOOK_EVERY_S)
            look_at_dead_letters(self.database)
            fates = self.database.rows("SELECT COUNT(*) FROM outbox_events WHERE processed_at IS NOT NULL")[0][0]
            waits = self.database.rows(
                "SELECT 1 FROM outbox_events WHERE processed_at IS NULL AND priority_class <> 'LWW' LIMIT 1"
            )
            alerts = self.database.rows("SELECT kind FROM alerts WHERE is_open = 1 AND severity <> 'info'")
            self.told |= dict.fromkeys(kind for (kind,) in alerts)
            if fates != self.outcomes_seen or not waits or alerts:
                self.outcomes_seen, last = fates, self.hub.now
            self.silent_s = max(self.silent_s, self.hub.now - last)


MODES = (
    Mode("closes after every reply", ({"name": "close_after", "on": "any"},)),
    Mode("closes after every second reply", ({"name": "close_after", "on": "any", "every": 2},)),
    Mode("closes after every tenth reply", ({"name": "close_after", "on": "any", "every": 10},)),
    Mode("two alternating expected nonces",
         ({"name": "say", "on": "ask", "status": 200, "shift": -1, "every": 2},), closes=True),
    Mode("HTTP/1.0, one request a connection", ({"name": "http10", "on": "any"},), closes=True),
    Mode("HTTP/1.0 without a length", ({"name": "http10", "on": "any", "length": False},), closes=True),
    Mode("a foreign write, and 2^63 in the replay's answer",
         ({"name": "foreign_write", "next": 1},
          {"name": "say", "status": 400, "fields": {"expected_nonce": 2**63}}), repeats=True, tells="halted"),
    Mode("a ban of 24 h that is over in 20 s",
         ({"name": "say", "status": 403, "on": "any", "fields": {"retry_after": 86_400}},), bans=True),
    Mode("a ban that says nonsense of its length",
         ({"name": "say", "status": 403, "on": "any", "fields": {"retry_after": 1e300}},), bans=True),
    Mode("replies that are always unreadable", ({"name": "garbage", "on": "sync", "reply": "not_json"},)),
    Mode("replies and answers that are always unreadable", ({"name": "garbage", "on": "any", "reply": "bytes"},)),
    Mode("one low reading", ({"name": "say", "on": "ask", "shift": -1, "next": 2},), closes=True),
    Mode("a proxy that delivers a request twice, the second answer heard",
         ({"name": "duplicate", "next": 1},), repeats=True),
    Mode("a proxy that delivers a request twice, the first answer heard",
         ({"name": "duplicate", "next": 1, "answer": "first"},), repeats=True),
    Mode("a total outage", ({"name": "refuse"},), closes=True),
    Mode("busy for long", ({"name": "busy", "on": "any", "retry_after": 1.0},)),
    Mode("422 of another form, the nonce used", ({"name": "answer", "status": 422, "body": "no", "nonce": "used"},),
         tells="dead-letters"),
    Mode("500, the nonce used and nothing applied", ({"name": "answer", "status": 500, "nonce": "used"},),
         tells="dead-letters"),
    Mode("a page instead of the answer, and applied",
         ({"name": "answer", "status": 200, "body": "<h1>It works</h1>", "nonce": "applied"},), tells="dead-letters"),
    Mode("500 to everything, no nonce used", ({"name": "answer", "status": 500, "nonce": "unused"},)),
    Mode("silent", ({"name": "hang", "on": "any", "seconds": 30.0},)),
)  # fmt: skip
each_mode = pytest.mark.parametrize("mode", MODES, ids=str)


@each_mode
def test_nothing_is_lost_and_every_stop_is_told_within_30_s(mode: Mode) -> None:
    world = OddWorld(mode)
    verdict = world.play()
    assert verdict.violations == []
    assert world.silent_s <= TOLD_WITHIN_S, f"silent for {world.silent_s:.0f} s; told of {list(world.told)}"
    assert not mode.tells or mode.tells in world.told
    assert world.left_open == []


@pytest.mark.parametrize("mode", [mode for mode in MODES if "twice" in mode.name], ids=str)
def test_what_a_proxy_delivered_twice_is_applied_once_when_oldhosts_count_is_adopted(mode: Mode) -> None:
    world = OddWorld(mode, resolve_with="adopt")
    world.play()
    assert "halted" in world.told or "first answer" in mode.name  # its nonces are as they should be
    assert [change for change, times in world.always.times_applied.items() if times != 1] == []


def test_replies_that_are_always_unreadable_are_told_though_each_operation_gets_a_fate() -> None:
    """Whole answers, and the nonce is used: each is a letter, and each ends a session."""
    world = OddWorld(next(mode for mode in MODES if mode.name == "replies that are always unreadable"))
    world.play()
    assert {"dead-letters", "sessions-broken"} <= set(world.told)


@pytest.mark.parametrize(("every", "operations"), [("second", 25), ("tenth", 35)])
def test_connections_that_oldhost_closes_cost_little(every: str, operations: int) -> None:
    world = OddWorld(next(mode for mode in MODES if mode.name == f"closes after every {every} reply"))
    world.play()
    assert world.operations_while_odd >= operations


def test_one_low_reading_halts_nobody() -> None:
    world = OddWorld(next(mode for mode in MODES if mode.name == "one low reading"))
    world.play()
    assert "halted" not in world.told


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if "the nonce used" in mode.name or "a page" in mode.name], ids=str
)
def test_only_what_oldhost_has_is_applied_and_confirmed(mode: Mode) -> None:
    """No process dies and no answer is lost: each arrives whole."""
    world = OddWorld(mode)
    applied: list[tuple[int, int]] = []
    heal = world.heal

    def then_heal() -> Verdict:
        rows = world.database.rows("SELECT id, unproven FROM outbox_events WHERE outcome = 'APPLIED'")
        applied.extend((change_id, unproven) for change_id, unproven in rows)
        return heal()

    world.heal = then_heal  # type: ignore[method-assign]
    world.play()
    assert [change_id for change_id, unproven in applied if unproven] == []
    assert [change_id for change_id, _ in applied if not world.always.times_applied.get(change_id)] == []


REFUSED = {"rule": {"entity_id": "e0"}}
ONE_REFUSED = (
    Mode("a firewall's 403", ({"name": "answer", "status": 403, "nonce": "unused", **REFUSED},)),
    Mode("500", ({"name": "answer", "status": 500, "nonce": "unused", **REFUSED},)),
    Mode("another 400", ({"name": "answer", "status": 400, "body": "{}", "nonce": "unused", **REFUSED},)),
    Mode("busy", ({"name": "busy", "retry_after": 1.0, **REFUSED},)),
    Mode("a reset", ({"name": "drop_before", "reset": True, **REFUSED},)),
)
OTHERS_WAIT_S_MAX = 15.0


class OneRefused(OddWorld):
    """Only one unit is refused. `late`: emergencies of others, and how long they took; `left`: other units' changes
    that had no fate after a while."""

    def play(self) -> Verdict:
        for number in range(12):
            at = self.hub.now + QUIET_S + 5 + 9 * number
            self.hub.at(at, lambda number=number: self._emergency(number))  # type: ignore[misc]
        return super().play()

    def _emergency(self, number: int) -> None:
        payload = {"number": f"e-{number}", "note": MARKER}
        self.applications.want(Wish(f"e-{number}", "unit", "e1", "guest_locked_out", payload, "api"))

    def heal(self) -> Verdict:
        of_others = "entity_id <> 'e0' AND created_at > ?"
        since = round((EPOCH + QUIET_S) * 1_000_000)
        rows = self.database.rows(
            "SELECT id, processed_at - created_at FROM outbox_events "
            f"WHERE priority_class = 'EMERGENCY' AND {of_others}",
            since,
        )
        self.late = [(change_id, took) for change_id, took in rows if (took or 1e12) > OTHERS_WAIT_S_MAX * 1_000_000]
        self.emergencies = len(rows)
        before = round((self.hub.now - 40) * 1_000_000)
        self.left = self.database.rows(
            f"SELECT id FROM outbox_events WHERE {of_others} AND created_at < ? AND processed_at IS NULL", since, before
        )
        return super().heal()


@pytest.mark.parametrize("mode", ONE_REFUSED, ids=str)
def test_an_operation_that_is_refused_for_ever_stops_nobody_else(mode: Mode) -> None:
    world = OneRefused(mode)
    verdict = world.play()
    assert verdict.violations == []
    assert world.emergencies >= 12
    assert verdict.sometimes["a change that waits apart"]
    assert (world.late, world.left) == ([], [])
    assert world.silent_s <= TOLD_WITHIN_S
