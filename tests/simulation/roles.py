"""The other roles: relays (the product's own `Relay`), API processes that record, applications, and operators."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.duty import DutyLoop, RelayPace
from oldhost_sync.relay.fates import FateWriter
from oldhost_sync.relay.relay import Relay
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.transactions import run_in_transaction
from tests.simulation.hub import Hub, Process
from tests.simulation.workflow_run import payload_of
from workflows import messages

HOST = "oldhost"
# What must never be seen in Temporal's history (I9).
MARKER = "confidential-7f3a"
PACE = RelayPace(poll_s=0.7, signal_interval_s=1.0, schedule_interval_s=1.0, lease_s=20.0, retention_interval_s=1e9)


class Lost(Exception):
    """Temporal did not acknowledge."""


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that blocks in its task instead of waiting on a loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited on a loop")


class BlockingTransactions(Transactions):
    """The relay's transactions in its own task, instead of on threads."""

    async def run(self, fn: Callable[..., Any], **_: Any) -> Any:
        return run_in_transaction(self._engine, fn)


class RelayProcess:
    """One relay: its rounds until it is killed. It rests while nothing is there to be relayed."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.hub: Hub = world.hub
        self.process = self.hub.process(f"relay-{number}")
        self.process.mortal = True
        transactions = BlockingTransactions(world.engine(self.process))
        self.fates = DutyLoop(FateWriter(transactions, [HOST]), monotonic=self.hub.monotonic)
        self.relay = Relay(
            transactions,
            self._signal,
            HOST,
            owner=self.process.name,
            pace=PACE,
            monotonic=self.hub.monotonic,
            wall=self.hub.monotonic,
            chance=self.hub.random.random,
        )
        self.process.spawn(self._run)

    def _run(self) -> None:
        while True:
            pause = driven(self.relay._guarded_round())
            driven(self.fates.guarded_round())
            if not self.world.has_unrelayed():
                self.hub.park(20.0, self.world.at_next_record)
            self.hub.sleep(pause)

    async def _signal(self, refs: list[ChangeRef]) -> None:
        world, process = self.world, self.process
        process.check()
        batch = payload_of(messages.EnqueueBatch.of(refs))
        world.look_for_payload("enqueue", batch)
        mode = world.faults.at("signal", process, "enqueue")
        if mode == "die":
            process.kill()
            process.check()
        if mode == "before" or world.temporal.away:
            self.hub.sleep(1.0)
            raise Lost("not delivered")
        if mode == "hang":
            self.hub.after(self.hub.random.random() * 15, lambda: world.temporal.signal_with_start("enqueue", batch))
            self.hub.sleep(10)
            raise Lost("no acknowledgement")
        self.hub.sleep(0.005)
        world.temporal.signal_with_start("enqueue", batch)
        self.hub.sleep(0.005)
        if mode == "after":
            raise Lost("the acknowledgement was lost")


@dataclass(eq=False)
class Wish:
    """A change an application wants; `change_id` once somebody promised it (a 2xx, or a recorded signal)."""

    key: str
    entity_type: str
    entity_id: str
    event_type: str
    payload: dict[str, Any]
    way: str
    change_id: int | None = None
    tries: int = 0
    answers: list[str] = field(default_factory=list)
    keyless: bool = False


class Api:
    """One API process: records each wish in a transaction of its own."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.hub: Hub = world.hub
        self.process = self.hub.process(f"api-{number}")
        self.process.mortal = True
        self.engine = world.engine(self.process)

    def post(self, wish: Wish, reply: Callable[[Any], None]) -> None:
        self.process.spawn(lambda: self._record(wish, reply))

    def _record(self, wish: Wish, reply: Callable[[Any], None]) -> None:
        open_s = self.hub.random.choice((0.0, 0.0, 0.01, 0.3, 1.5))
        record = partial(
            record_change,
            host=HOST,
            entity_type=wish.entity_type,
            entity_id=wish.entity_id,
            event_type=wish.event_type,
            payload=wish.payload,
            idempotency_key=wish.key,
            source="http",
        )
        try:
            recorded = run_in_transaction(self.engine.recording(wish.entity_id, open_s), record)
        except (StoreError, DBAPIError) as error:
            reply(error)
            return
        self.process.check()
        reply(recorded.change_id)


def _as_change(wish: Wish) -> dict[str, Any]:
    change = {
        "entity_type": wish.entity_type,
        "entity_id": wish.entity_id,
        "event_type": wish.event_type,
        "payload": wish.payload,
    }
    return change if wish.keyless else {**change, "idempotency_key": wish.key}


class Applications:
    """Everybody who wants changes; they ask again, with the same key, until they were promised."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.hub: Hub = world.hub
        self.process = self.hub.process("applications")
        self.wishes: list[Wish] = []
        self.waiting = 0

    def want(self, wish: Wish) -> None:
        self.wishes.append(wish)
        self.waiting += 1
        self.process.spawn(lambda: self._pursue(wish))

    def _pursue(self, wish: Wish) -> None:
        if wish.way == "apply_now":
            self._apply_now(wish)
        elif wish.way == "signal":
            self._signal(wish)
        elif wish.way == "submit":
            self._submit(wish)
        while wish.change_id is None:
            wish.tries += 1
            self._post(wish)
            if wish.change_id is None:
                self.hub.sleep(0.5 + self.hub.random.random() * min(wish.tries, 10))
        self.waiting -= 1

    def _post(self, wish: Wish) -> None:
        apis = [one for one in self.world.apis if one.process.alive]
        if not apis:
            return
        api = self.hub.random.choice(apis)
        answer = self.hub.park(30.0, lambda wake: api.post(wish, wake))
        if isinstance(answer, int):
            wish.change_id = answer
            self.world.promised(wish)
        elif answer is not None:
            wish.answers.append(type(answer).__name__)

    def _signal(self, wish: Wish) -> None:
        """`submit_change`. Once acknowledged it must be recorded, whatever becomes of the run
        (I13): nobody sends it again."""
        while self.world.temporal.away:
            self.hub.sleep(2.0)
        change = _as_change(wish)
        self.world.temporal.signal_with_start("submit_change", payload_of(change))
        while wish.change_id is None:
            self.hub.sleep(5.0)
            found = self.world.database.rows(*self.look_for(wish))
            if len(found) > 1:
                self.world.always.fail(f"I13: the signal of {wish.key} was recorded {len(found)} times")
            wish.change_id = found[0][0] if found else None

    @staticmethod
    def look_for(wish: Wish) -> tuple[str, str]:
        if not wish.keyless:
            return "SELECT id FROM outbox_events WHERE idempotency_key = ?", wish.key
        number = wish.payload["number"]
        # What an undo records anew says the same.
        query = "SELECT id FROM outbox_events WHERE json_extract(payload, '$.number') = ?"
        return f"{query} AND idempotency_key NOT LIKE 'undo-%'", number

    def _submit(self, wish: Wish) -> None:
        """The update `submit`, under one update id; without a key it is repeated until it is
        answered, with one it may go by HTTP."""
        change = _as_change(wish)
        tries = 100 if wish.keyless else self.hub.random.choice((1, 3))
        for _ in range(tries):
            answer = self.hub.park(40.0, lambda wake: self._update("submit", change, wake, f"update of {wish.key}"))
            if answer is not None and answer[0] is not None:
                wish.change_id = answer[0].change_id
                self.world.sometimes.hit("submit recorded")
                self.world.promised(wish)
                return
            self.hub.sleep(2 + self.hub.random.random() * 10)

    def _update(self, name: str, change: dict[str, Any], wake: Callable[[Any], None], update_id: str) -> None:
        self.world.temporal.update(name, change, lambda result, why: wake((result, why)), update_id)

    def _apply_now(self, wish: Wish) -> None:
        change = _as_change(wish)
        answer = self.hub.park(
            60.0, lambda wake: self.world.temporal.update("apply_now", change, lambda result, why: wake((result, why)))
        )
        if answer is not None and answer[0] is not None:
            wish.change_id = answer[0].change_id
            self.world.promised(wish)
            if answer[0].status == "APPLIED":
                self.world.check_applied_answer(answer[0])


class Operators:
    """People on call: they decide dead letters and halts, now and then pause, flush and resume."""

    def __init__(self, world: Any, *, eagerness: float) -> None:
        self.world = world
        self.hub: Hub = world.hub
        self.process: Process = self.hub.process("operators")
        self.eagerness = eagerness
        self.decided: list[str] = []
        self.resolve_with = ""
        self.healing = False
        self.process.spawn(self._run)

    def _run(self) -> None:
        random = self.hub.random
        while True:
            self.hub.sleep(10 + random.random() * 30)
            for change_id, unsure in self.world.undecided():
                if self.healing or random.random() < self.eagerness:
                    action = "discard" if random.random() < (0.8 if self.healing else 0.5) else "retry"
                    if unsure and change_id in self.world.oldhost.has():
                        action = "confirm"  # they look whether OldHost has it
                    self.ask(action, change_id=change_id)
            halted = self.world.halted()
            if halted and (self.healing or random.random() < 0.5):
                mode = self.resolve_with or random.choice(("resend", "adopt"))
                self.ask("resolve", mode=self.world.word_about(halted) or mode)
            self._meddle()

    def _meddle(self) -> None:
        machine = self.world.machine
        if machine is None:
            return
        if machine.paused and (self.healing or self.hub.random.random() < 0.4):
            self.ask("resume")
        elif not self.healing and self.eagerness and self.hub.random.random() < 0.03:
            self.ask(self.hub.random.choice(("pause", "flush")))

    def ask(self, action: str, *, change_id: int | None = None, mode: str | None = None) -> str:
        request = messages.OperatorAct(
            operator="operator", reason="as the runbook says", change_id=change_id, mode=mode
        )
        answer = self.hub.park(
            60.0, lambda wake: self.world.temporal.update(action, request, lambda result, why: wake((result, why)))
        )
        done = "" if answer is None else str(answer[0] if answer[0] is not None else answer[1])
        self.world.log("operator", action, change_id, mode, done)
        if answer is not None and answer[0] is not None:
            self.decided.append(action)
            if action == "resolve":
                self.world.sometimes.hit("halt resolved")
        return done
