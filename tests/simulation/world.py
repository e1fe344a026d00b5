"""One seed's world: everything put together, the faulty phase, the healing, the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from oldhost_sync.driver_kit.memory_database import MemoryDatabase
from oldhost_sync.oldhost.errors import Fenced
from oldhost_sync.oldhost.ledger import Evidence
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.ledger.halt import NOBODY_KNOWS
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.reconciliation import MachineClock
from tests.kinds_of_host import OLDHOST, Kind
from tests.simulation import patches, store
from tests.simulation.faults import Faults, RandomFaults
from tests.simulation.hub import EPOCH, Hub, Process
from tests.simulation.invariants import Always, after_healing
from tests.simulation.nemesis import LaterNemesis, Nemesis
from tests.simulation.oldhost import OldHost
from tests.simulation.operator_fuzzer import OperatorFuzzer
from tests.simulation.roles import HOST, MARKER, Api, Applications, Operators, RelayProcess, Wish
from tests.simulation.shape import Shape, Verdict
from tests.simulation.sometimes import Sometimes
from tests.simulation.temporal import Server, Signal, logged
from tests.simulation.watches import Nudges, WorkerWatch
from tests.simulation.withdrawals import Withdrawers, withdrawn
from tests.simulation.worker import Worker, settle_time
from workflows import messages

LWW = ("unit_status_changed", "unit_details_changed", "rate_changed")
TXN = ("booking_created", "door_code_changed", "checked_in")
EMERGENCY = ("guest_locked_out", "lock_emergency")
LIMITS = SessionLimits(request_timeout_seconds=5.0, settle_seconds=10.0)
STARTER_EVERY_S = 30.0
# A lag of a kind of host is one of tests in real time, whose sessions wait so much less for what comes late.
LAG_SCALE = 200


class _Ledger(MariaLedger):
    """The real one; it says when an old epoch was turned away."""

    world: World

    def reserve(self, epoch: int, change_ids: Any, accepted_at_ms: Any = None) -> Any:
        try:
            entries = super().reserve(epoch, change_ids, accepted_at_ms)
        except Fenced:
            self.world.sometimes.hit("zombie fenced at RESERVED")
            raise
        if entries.older:
            self.world.sometimes.hit("reservation refused to overtake")
        if entries.held:
            self.world.sometimes.hit("held at the reservation")
        return entries

    def advance(self, epoch: int, answered: Any, sent: Any, *, again: bool = False) -> Any:
        try:
            return super().advance(epoch, answered, sent, again=again)
        except Fenced:
            self.world.sometimes.hit("zombie fenced at SENT")
            raise

    def release_nonces(self, epoch: int, answered: Any, beyond: int) -> Any:
        fate = super().release_nonces(epoch, answered, beyond)
        rejected = fate is not None and fate.outcome == "DEAD"
        self.world.sometimes.hit("gave back after a rejection" if rejected else "gave back what was reserved")
        return fate

    def reconcile(self, epoch: int, evidence: Evidence, *, final: bool = True) -> Any:
        found = super().reconcile(epoch, evidence, final=final)
        if found.halted is None and found.mismatch is None:
            self.world.always.reconciled = max(self.world.always.reconciled, epoch)
        return found

    def take_over(self, owner: str) -> Any:
        taken = super().take_over(owner)
        if taken.settle_wait_ms:
            self.world.sometimes.hit("settle wait")
        return taken


class World:
    """`run` plays it out. Everything random comes from `seed`; nothing else is read."""

    def __init__(
        self, seed: int, *, shape: Shape | None = None, faults: Faults | None = None, kind: Kind = OLDHOST
    ) -> None:
        patches.install()
        random = Random(seed)
        self.seed = seed
        self.kind = kind
        self.shape = shape = shape or Shape.drawn(random)
        self.limits = LIMITS
        self.hub = Hub(random)
        self.sometimes = Sometimes()
        self._digest = hashlib.sha256()
        self.events = 0
        self.trace: list[str] | None = None
        self.faults: Any = faults or RandomFaults(random)
        # Of its own, so that the seeds from before stay what they were.
        self._ways = Random(f"{seed}/ways")
        self._submitted = 0.0
        self.database_offset = 0.0
        self.temporal_offset = 0.0
        self.nudges: Nudges | None = None
        self.clock_jumps_s: tuple[float, ...] = (-7200.0, -120.0, -2.0, 2.0, 120.0, 7200.0)
        self.database = MemoryDatabase(lambda: self.hub.now + self.database_offset)
        self.always = Always(self)
        self.database.after_statement.append(self.always.statement)
        self.database.after_commit.append(self.always.committed)
        self.database.after_commit.append(self._recorded)
        self.weather, self.locks = store.Weather(), store.Locks()
        self.first_nonce = kind.first_number or shape.first_nonce
        self.oldhost = OldHost(
            self.hub,
            seed=seed,
            latency_ms=shape.latency_ms,
            ban_seconds=shape.ban_s,
            first_nonce=self.first_nonce,
            dialect=kind.dialect,
            behaviour=replace(kind.behaviour, lags_seconds=kind.behaviour.lags_seconds * LAG_SCALE),
        )
        self.oldhost.host.on_fact = self._fact
        self.attempts: dict[Any, None] = {}
        self.machine: Machine | None = None
        self.retried: dict[int, None] = {}
        self.deciding: dict[object, Process] = {}  # who records a decision, also for a run that is gone
        self.direction = ""
        self.bans = 0
        self._next_record: list[Callable[[Any], None]] = []
        self._numbers = 0
        self.temporal = Server(self.hub, self, events_suggested=shape.events_suggested)
        self.workers: list[Worker] = []
        self.relays: list[RelayProcess] = []
        self.apis: list[Api] = []
        self.healing = False
        self.worker_watch: WorkerWatch | None = None

    def begin(self) -> None:
        """Start every role."""
        shape = self.shape
        for _ in range(shape.workers):
            self._start_worker()
        for _ in range(shape.relays):
            self._start_relay()
        for _ in range(2):
            self._start_api()
        self.applications = Applications(self)
        self.operators = Operators(self, eagerness=shape.eagerness)
        self.hub.process("starter").spawn(self._starter)

    # ----------------------------------------------------------------------------------------------------------- phases

    def run(self) -> Verdict:
        """Faults, then healing, then the checks."""
        self.worker_watch = WorkerWatch(self)
        self.begin()
        meddle = self.shape.meddle and self.kind.shows_meddling
        nemesis = Nemesis(self, pause_s=self.shape.pause_s, meddle=meddle)
        later = LaterNemesis(self)
        fuzzer, withdrawers = OperatorFuzzer(self), Withdrawers(self)
        self._submitted = self._ways.choice((0.0, 0.0, 0.0, 0.3))
        self._plan_changes()
        self._go_on_for(self.shape.minutes * 60)
        nemesis.rest()
        later.rest()
        fuzzer.rest()
        withdrawers.rest()
        verdict = self.heal()
        acts = {**fuzzer.counts, **withdrawers.counts}
        verdict.faults = {**nemesis.counts, **later.counts, **acts, **getattr(self.faults, "counts", {})}
        return verdict

    def _go_on_for(self, seconds: float) -> None:
        self.hub.run_until(self.hub.now + seconds, self._is_lost)

    def heal(self) -> Verdict:
        """Everything works again; within a bounded time everything must have come to its end."""
        self.healing = self.operators.healing = True
        self.faults.on = False
        self.oldhost.faults.switch_off()
        self.oldhost.come_up()
        self.temporal_back()
        self.database_back()
        self.database_quick()
        for process in [role.process for role in self.workers] + [role.process for role in self.relays]:
            process.go_on()
        for worker in self.workers:
            worker.link.parted_until = 0.0
        healed_at = self.hub.now
        longest = 1800 + 2 * self.shape.ban_s + 12 * self.shape.debounce_s + 2 * self.shape.changes
        done = self.hub.run_until(healed_at + longest, lambda: self._is_lost() or self._has_settled())
        violations = self.hub.failures + self.always.violations
        if not violations and not done:
            violations = [f"it did not heal within {longest:.0f} s: {self._what_waits()}"]
        recovery_s = self.hub.now - healed_at
        if not violations:
            self.hub.run_until(self.hub.now + 2 * self.limits.settle_seconds, self._is_lost)
            violations = self.hub.failures + self.always.violations + after_healing(self)
        operations = len(self.oldhost.applied())
        changes = self.database.rows("SELECT COUNT(*) FROM outbox_events")[0][0]
        self.hub.end()
        self.database.raw.close()
        return Verdict(
            self.seed,
            violations,
            dict(self.sometimes.counts),
            self._digest.hexdigest()[:16],
            self.hub.now - EPOCH,
            operations,
            changes,
            recovery_s=recovery_s,
            healed=done,
        )

    def _is_lost(self) -> bool:
        return bool(self.always.violations or self.hub.failures)

    def _has_settled(self) -> bool:
        if self.applications.waiting or self.operators.process.stopped:
            return False
        if self._settled_at == self.hub.now:
            return False
        self._settled_at = self.hub.now
        waits = self.database.rows("SELECT 1 FROM outbox_events WHERE processed_at IS NULL LIMIT 1")
        if waits or self.dead_letters() or self.halted() or self._holds_something():
            return False
        return not self.always.meddled or self._counts_agree()

    def _counts_agree(self) -> bool:
        """What somebody did to OldHost is found by the next comparison; only then it is over."""
        rows = self.database.rows("SELECT next_nonce FROM nonce_ledger")
        return not rows or rows[0][0] in {None, self.oldhost.host.expected_nonce}

    _settled_at = 0.0

    def _holds_something(self) -> bool:
        machine = self.machine
        if machine is None or not machine.loaded:
            return machine is not None  # whether it is paused is not read yet
        # One that was withdrawn, and of which the machine was not told, is dropped when it is due: by Temporal's clock.
        waits = len(withdrawn(self.database, machine.coalescer.waiting)) < len(machine.coalescer.waiting)
        return bool(waits or len(machine.in_flight) or machine.paused)

    def _what_waits(self) -> str:
        waits = self.database.rows(
            "SELECT id, priority_class, relayed_at IS NOT NULL FROM outbox_events WHERE processed_at IS NULL"
        )
        machine = self.machine
        state = machine and (
            machine.session,
            machine.breaker,
            list(machine.coalescer.waiting),
            list(machine.in_flight),
            machine.in_flight.sends,
            machine.in_flight.bound,
            machine.in_flight.in_doubt,
            machine.loaded,
            machine.draining,
            machine.paused,
            list(machine.coalescer.holds.values()),
        )
        return (
            f"{waits}, dead {self.dead_letters()}, halted {self.halted()}, wishes {self.applications.waiting}, {state}"
        )

    # ------------------------------------------------------------------------------------------------------------- load

    def _plan_changes(self) -> None:
        random, shape = self.hub.random, self.shape
        for number in range(shape.changes):
            at = self.hub.now + random.random() * shape.minutes * 60 * 0.9
            wish = self.wish(number, random)
            self.hub.at(at, lambda wish=wish: self.applications.want(wish))  # type: ignore[misc]

    def wish(self, number: int, random: Random) -> Wish:
        event_type = random.choice(random.choices((LWW, TXN, EMERGENCY), (6, 3, 1))[0])
        entity = f"e{random.randrange(self.shape.entities)}"
        entity_type = "lock" if event_type == "lock_emergency" else "unit"
        payload = {"status": random.choice(("Clean", "Dirty")), "note": MARKER}
        if event_type not in LWW:
            payload["number"] = str(number)
        way = "api"
        if random.random() < 0.15:
            way = "apply_now" if event_type in EMERGENCY else "signal"
        keyless = way == "signal" and event_type in TXN and random.random() < 0.5
        if way == "api" and self._ways.random() < self._submitted:
            way, keyless = "submit", event_type in TXN and self._ways.random() < 0.5
        return Wish(f"key-{number}", entity_type, entity, event_type, payload, way, keyless=keyless)

    # ----------------------------------------------------------------------------------------------- starting the roles

    def engine(self, process: Process) -> store.Engine:
        """A process's way to the database."""
        engine = store.Engine(self.hub, self.database, process, self.faults, self.weather, self.locks)
        engine.at_deadlock = lambda: self.sometimes.hit("deadlock retried")
        engine.at_unknown_commit = lambda: self.sometimes.hit("COMMIT unknown")
        return engine

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _start_worker(self) -> None:
        worker = Worker(self, self._number(), self.limits)
        clock = MachineClock(self.hub.monotonic, "one")
        ledger = _Ledger(worker.sessions.engine, HOST, settle_time(self.limits), clock)
        ledger.world = self
        worker.sessions.ledger = lambda host: ledger  # type: ignore[method-assign]
        self.workers.append(worker)
        worker.process.at_death.append(lambda: self._gone(self.workers, worker, self._start_worker))
        worker.process.at_go_on.append(self.temporal.give_out)
        if self.worker_watch:
            self.worker_watch.watch(worker)
        self.hub.soon(self.temporal.give_out)
        self.temporal.workers = self.workers

    def _start_relay(self) -> None:
        relay = RelayProcess(self, self._number())
        self.relays.append(relay)
        relay.process.at_death.append(lambda: self._gone(self.relays, relay, self._start_relay))

    def _start_api(self) -> None:
        api = Api(self, self._number())
        self.apis.append(api)
        api.process.at_death.append(lambda: self._gone(self.apis, api, self._start_api))

    def _gone(self, roles: list[Any], role: Any, start: Callable[[], None]) -> None:
        self.log("gone", role.process.name)
        if role in roles:
            roles.remove(role)
        self.hub.after(self.hub.random.uniform(0.5, 15), start)

    def drain(self, worker: Worker) -> None:
        def done() -> None:
            self.sometimes.hit("worker drained")
            worker.process.kill()

        worker.leave(done)

    def _starter(self) -> None:
        while True:
            if not self.temporal.away:
                self.temporal.start(self.workflow_input())
            self.hub.sleep(STARTER_EVERY_S)

    def workflow_input(self) -> messages.WriterInput:
        shape = self.shape
        policy = WriterPolicy(
            debounce_ms=round(shape.debounce_s * 1000),
            max_wait_ms=round(shape.debounce_s * 5000),
            ban_ms=round(shape.ban_s * 1000),
            sweep_ms=120_000,
            probe_ms=90_000,
        )
        return messages.WriterInput(HOST, policy)

    # ----------------------------------------------------------------------------------------------- what happens to it

    def temporal_back(self) -> None:
        self.temporal.away = False
        self.temporal.give_out()

    def step_temporal_clock(self, seconds: float) -> None:
        self.temporal_offset += seconds
        if seconds < 0 and self.nudges is None:
            self.nudges = Nudges(self)

    def database_back(self) -> None:
        self.weather.down = False

    def database_quick(self) -> None:
        self.weather.delay_s = 0.001

    def ban(self) -> None:
        """Three in a run at most: more would only make it longer."""
        if self.bans < 3:
            self.bans += 1
            self.oldhost.ban_now(self.shape.ban_s)

    def word_about(self, halt: str) -> str:
        """How to resolve a halt about one operation, by a look at what the host has; empty: it is about its count."""
        if not halt.startswith(NOBODY_KNOWS):
            return ""
        self.sometimes.hit("a halt that names an operation")
        change_id, _, nonce = halt.removeprefix(NOBODY_KNOWS).partition("(nonce ")
        is_used = self.oldhost.has_used(int(nonce.partition(")")[0]), int(change_id))
        return "adopt" if is_used else "resend"

    def meddle(self, direction: str) -> None:
        self.direction = direction
        self.always.meddle()

    # ------------------------------------------------------------------------------------------- what others tell it of

    def at(self) -> float:
        return self.hub.now - EPOCH

    def log(self, *fields: object) -> None:
        line = f"{self.at():.6f} {' '.join(str(one) for one in fields)}"
        self._digest.update(line.encode())
        self.events += 1
        if self.trace is not None:
            self.trace.append(line)

    def _fact(self, fact: Any) -> None:
        kind = getattr(fact, "outcome", None) or fact.incident
        self.log(
            "oldhost",
            kind,
            fact.nonce,
            fact.expected_nonce,
            fact.body and fact.body.get("event_id") if hasattr(fact, "body") else "",
        )
        self.always.fact(fact)
        if kind == "applied" and self.oldhost.host.count("ban"):
            self.sometimes.hit("ban survived")

    def began(self, instance: Any) -> None:
        if self.temporal.runs > 1 and not instance.machine.loaded:
            self.sometimes.hit("rebuilt from the database")
        self.machine = instance.machine
        self.always.watch(instance.machine)
        self.log("run", self.temporal.runs)

    def carried(self, given: messages.WriterInput) -> messages.WriterInput:
        """What a new run is given by the old one; a scenario may spoil it."""
        return given

    def rebind(self, act: Any, run: Any) -> Any:
        if isinstance(act, Signal):
            return act.moved(run)
        return lambda: None

    def connected(self, number: int, client: Any, process: Process) -> None:
        rows = self.database.rows("SELECT epoch FROM nonce_ledger WHERE host = ?", HOST)
        epoch = rows[0][0] if rows else 0
        if number:
            self.always.epoch_of_connection[number] = epoch
        self.log("connected", process.name, number, epoch)
        client.before_write = lambda data: self.always.before_write(data, epoch, self.limits.send_within_seconds)

    def raised(self, name: str, error: Exception) -> None:
        self.log("raised", logged(name), type(error).__name__)
        if name == "recover_submissions" and isinstance(error, ConnectionError):
            return  # Temporal was away; the activity is tried again
        if type(error).__name__ not in {
            "DatabaseUnavailable",
            "CommitUncertain",
            "TransactionContended",
            "RowLocked",
            "LedgerUnavailable",
        }:
            self.always.fail(f"{name} raised {type(error).__name__}: {error}")

    def promised(self, wish: Wish) -> None:
        self.log("promised", wish.key, wish.change_id)
        found = self.database.rows(*self.applications.look_for(wish))
        if len(found) != 1 or found[0][0] != wish.change_id:
            self.always.fail(f"{wish.key} was promised as {wish.change_id}; the outbox has {found}")

    def check_applied_answer(self, answer: messages.ApplyNowAnswer) -> None:
        entry = self.always.applied.get(answer.nonce or 0)
        if self.always.meddled or answer.change_id in self.always.mistaken:
            return
        if entry is None or entry.body is None or entry.body["event_id"] != answer.change_id:
            self.always.fail(f"apply_now said nonce {answer.nonce} for change {answer.change_id}; OldHost has {entry}")

    def look_for_payload(self, where: str, payload: Any, *, submissions: bool = False) -> None:
        if b'"kind":"strays"' in payload.data:
            self.sometimes.hit("sweep found a stray")
        if not submissions and MARKER.encode() in payload.data:
            self.always.fail(f"I9: {where} carries a payload")

    def _recorded(self) -> None:
        if not self.always.has_inserted:
            return
        self.always.has_inserted = False
        waiting, self._next_record = self._next_record, []
        for wake in waiting:
            wake(True)

    def at_next_record(self, wake: Callable[[Any], None]) -> None:
        self._next_record.append(wake)

    def has_unrelayed(self) -> bool:
        return bool(
            self.database.rows("SELECT 1 FROM outbox_events WHERE processed_at IS NULL AND relayed_at IS NULL LIMIT 1")
        )

    def dead_letters(self) -> list[Any]:
        return self.database.rows(
            "SELECT id, entity_type, entity_id FROM outbox_events WHERE outcome = 'DEAD' ORDER BY id"
        )

    def undecided(self) -> list[Any]:
        """Dead letters, and whether each is unsure."""
        return self.database.rows("SELECT id, unproven FROM outbox_events WHERE outcome = 'DEAD' ORDER BY id")

    def halted(self) -> str | None:
        rows = self.database.rows("SELECT halted FROM nonce_ledger WHERE host = ?", HOST)
        return rows[0][0] if rows else None


def play(seed: int, *, trace: list[str] | None = None, kind: Kind = OLDHOST) -> Verdict:
    """One seed, from beginning to end."""
    world = World(seed, kind=kind)
    world.trace = trace
    return world.run()
