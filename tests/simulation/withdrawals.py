"""Operators who withdraw what waits, at any moment, and now and then undo it; in the runs from seed 1,000,000 on, so
that the seeds from before stay what they were.

They go the product's own way to the database, with its faults and those of a process that dies between two steps; the
writer is told late, or never. The checker knows their fate: what is withdrawn never has a nonce, then or later, OldHost
never applies it, and the shadow and OldHost end as if it had never come.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.changes import CHANGE_ID_MAX
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.intake.withdrawal import (
    NothingToUndo,
    WithdrawalFilter,
    WithdrawalStep,
    begin_undo,
    begin_withdrawal,
    preview,
)
from oldhost_sync.store.transactions import run_in_transaction
from tests.simulation.workflow_run import payload_of
from workflows import messages

FIRST_SEED = 1_000_000
HOST = "oldhost"
EVENT_TYPES = ("unit_status_changed", "unit_details_changed", "rate_changed", "booking_created", "guest_locked_out")


class Withdrawers:
    """Act until `rest`, in runs that have them. `counts`: acts by kind."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.hub = world.hub
        self.random = Random(f"{world.seed}/withdrawals")
        self.resting = False
        self.counts: dict[str, int] = {}
        if world.seed >= FIRST_SEED:
            self._begin()

    def _begin(self) -> None:
        self.pause_s = self.random.choice((4.0, 15.0, 60.0))
        self.process = self.hub.process("withdrawer")
        self.process.at_death.append(lambda: self.hub.after(1.0, self._begin))
        self.process.spawn(self._run)

    def rest(self) -> None:
        self.resting = True

    def _run(self) -> None:
        engine = self.world.engine(self.process)
        while True:
            self.hub.sleep(self.random.expovariate(1 / self.pause_s))
            if self.resting:
                return
            try:
                self._act(engine)
            except (StoreError, DBAPIError) as error:
                self.world.log("withdrawer", type(error).__name__)

    def _act(self, engine: Any) -> None:
        wanted = WithdrawalFilter(**self._wanted())
        seen = run_in_transaction(engine, lambda connection: preview(connection, HOST, wanted))
        if self.random.random() < 0.3:
            self.hub.sleep(self.random.random() * 5)
        up_to = self.random.choice((seen.up_to, seen.up_to, CHANGE_ID_MAX))
        operator = at_the_terminal("withdrawer")
        begin = partial(begin_withdrawal, host=HOST, wanted=wanted, up_to=up_to, operator=operator, reason="wrong")
        act = run_in_transaction(engine, begin)
        while not act.done:
            step = run_in_transaction(engine, act.step)
            act.took(step)
            self._tell(step)
        self._count("withdraw", act.withdrawn)
        self.world.log("withdrawn", act.act_id, sorted(wanted.given), act.withdrawn, act.bound)
        if act.withdrawn and self.random.random() < 0.3:
            self.hub.sleep(self.random.choice((0.5, 20.0, 90.0)) * self.random.random())
            if not self.resting:
                self._undo(engine, act.act_id)

    def _wanted(self) -> dict[str, Any]:
        entity = f"e{self.random.randrange(self.world.shape.entities)}"
        waiting = self.world.database.rows("SELECT id FROM outbox_events WHERE processed_at IS NULL ORDER BY id")
        one = self.random.choice(waiting)[0] if waiting else 1
        return self.random.choice(
            (
                {"change_id": one},
                {"change_id": one},
                {"change_id": one},
                {"entity_type": "unit", "entity_id": entity},
                {"event_type": self.random.choice(EVENT_TYPES)},
                {"event_type": self.random.choice(EVENT_TYPES), "entity_id": entity},
                {"source": self.random.choice(("http", "signal"))},
                {"property_id": f"p{self.random.randrange(4)}"},
                {"priority_class": self.random.choice(("LWW", "TXN", "EMERGENCY"))},
            )
        )

    def _tell(self, step: WithdrawalStep) -> None:
        """The message may be lost, or late."""
        if not step.change_ids or self.random.random() < 0.3:
            return
        batch = messages.WithdrawnBatch(step.change_ids, [messages.to_wire(ref) for ref in step.refs])
        late_s = self.random.choice((0.0, 0.0, 0.05, 1.0, 20.0)) * self.random.random()
        self.hub.after(late_s, lambda: self.world.temporal.signal("enqueue", payload_of(batch)))

    def _undo(self, engine: Any, act_id: int) -> None:
        begin = partial(begin_undo, host=HOST, act_id=act_id, operator=at_the_terminal("withdrawer"), reason="no")
        try:
            undo = run_in_transaction(engine, begin)
        except NothingToUndo as error:
            self.world.log("withdrawer", str(error))
            return
        while not undo.done:
            undo.took(run_in_transaction(engine, undo.step))
        self._count("undo", undo.recorded)
        self.world.log("undone", act_id, undo.recorded, undo.left_out)

    def _count(self, what: str, number: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + number
        if number:
            self.world.sometimes.hit(f"{what}: {'changes withdrawn' if what == 'withdraw' else 'recorded anew'}")


def withdrawn(database: Any, change_ids: Iterable[int]) -> list[int]:
    """Those of these changes."""
    ids = ", ".join(str(change_id) for change_id in change_ids)
    rows = database.rows(f"SELECT id FROM outbox_events WHERE outcome = 'WITHDRAWN' AND id IN ({ids})") if ids else []
    return [change_id for (change_id,) in rows]


def standing(database: Any, rows: list[Any]) -> list[Any]:
    """The rows of the outbox (id first, the outcome eighth) that count in the end: not withdrawn, and not replaced by a
    withdrawn one, because they would have come too late.
    """
    gone = {change_id for (change_id,) in database.rows("SELECT id FROM outbox_events WHERE outcome = 'WITHDRAWN'")}
    late = {
        change_id
        for change_id, by in database.rows("SELECT id, superseded_by FROM outbox_events WHERE outcome = 'SUPERSEDED'")
        if by in gone
    }
    return [row for row in rows if row[0] not in gone and row[0] not in late]
