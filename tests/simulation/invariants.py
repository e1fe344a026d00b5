"""What must hold always, looked at with every event, and what must hold once all has healed.

The checks know the database's rows, OldHost's records and what was promised to applications; they ask nothing of the
code they judge. A violation is a sentence; the run ends with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

from oldhost_simulator.host import Entry, Fact, Incident
from oldhost_sync.driver_kit.memory_database import MemoryDatabase, PlainEngine
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.machine.actions import Action, Send
from oldhost_sync.policy.machine.events import SendEnded, SendFailed
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.queue.coalescer import Added, Coalescer
from oldhost_sync.policy.queue.operations import PendingOperation, label_of
from oldhost_sync.policy.rules.alert_cause import cause_of
from oldhost_sync.store.alerts import keep_dead_letter_alerts
from oldhost_sync.store.ledger.fates import ADOPTED, UNCONFIRMED
from oldhost_sync.store.ledger.operator_commands import CONFIRM_CHANGE, DISCARD_CHANGE, REOPEN_CHANGE
from oldhost_sync.store.outbox.pending_fates import _FORGET as FORGET_PENDING
from oldhost_sync.store.read.entities import not_synced
from tests.simulation import fields
from tests.simulation.first_come import FirstCome
from tests.simulation.withdrawals import standing

LEGAL = {
    (None, "RESERVED"), ("RESERVED", None), ("RESERVED", "SENT"), ("SENT", "SENT"), ("SENT", "APPLIED"),
    ("SENT", "FAILED"), ("SENT", "UNSURE"),
}  # fmt: skip
NEVER_HELD = {
    "unit_status_changed", "unit_details_changed", "rate_changed", "guest_locked_out", "lock_emergency",
}  # fmt: skip


@cache
def _written(statement: str) -> str:
    """The table that a statement writes to; "" for one that only reads."""
    statement = statement.split(" FOR ", 1)[1] if statement.startswith("SET STATEMENT") else statement
    word, _, rest = statement.partition(" ")
    if word not in {"UPDATE", "INSERT", "DELETE"}:
        return ""
    return rest.replace("INTO ", "").replace("FROM ", "").split(" ")[0]


OPERATION_FRAME = re.compile(rb'(?s:.{4})\{"type":"operation","number":(\d+)\}\n')


class Violation(AssertionError):
    """One of the promises was broken."""


def install() -> Callable[[], None]:
    """Let every decision of a watched machine be looked at before anybody acts on it."""
    decide = Machine.decide

    def watched(machine: Machine, now_ms: int) -> list[Action]:
        decided = decide(machine, now_ms)
        watcher: Always | None = vars(machine).get("watcher")
        return decided if watcher is None else watcher.decided(machine, decided, now_ms)

    Machine.decide = watched  # type: ignore[assignment,method-assign]
    return lambda: setattr(Machine, "decide", decide)


class Always:
    """`meddled`: somebody restored OldHost or wrote to it, so that replays and repetitions are no fault of ours."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.meddled = False
        self.violations: list[str] = []
        self.applied: dict[int, Entry] = {}  # by nonce
        self.rejected: dict[int, Entry] = {}
        self.times_applied: dict[int, int] = {}  # by change
        self.newest_of: dict[tuple[str, str], int] = {}
        self.first_dead: dict[tuple[str, str], int] = {}
        self.mistaken: dict[int, None] = {}
        self.misjudged: dict[int, None] = {}  # an operator decided on an unsure one as if OldHost had it, or had it not
        self.foreign: dict[int, None] = {}
        self.epoch_of_connection: dict[int, int] = {}
        self.reconciled = 0
        self._rows: dict[int, tuple[int, str, bytes]] = {}
        self._outcomes: dict[int, str | None] = {}
        self.has_inserted = False
        self._due: dict[int, int] = {}  # by change waiting
        self._floor = 0
        self._touched: set[str] = set()
        self._sent_again: dict[int, int] = {}
        self._bans, self._banned_until = 0, 0.0
        self.first_come = FirstCome(self)
        self._marked_with_offset = 0.0  # the database's clock as the newest row was marked SENT

    def fail(self, text: str) -> None:
        self.violations.append(f"{text} (at {self.world.at():.3f} s)")

    def meddle(self) -> None:
        """From now on a nonce that had its end may be used again, so the rows below the floor are
        looked at again, too."""
        self.meddled = True
        self._floor = 0

    # ---------------------------------------------------------------------------------------------------------- OldHost

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, Incident):
            if fact.incident in {"gap", "replay"} and not self.meddled and not self._is_its_recovery(fact):
                self.fail(f"I1: OldHost saw a {fact.incident}: nonce {fact.nonce}, expected {fact.expected_nonce}")
            if fact.incident == "ban":
                self._bans += fact.at >= self._banned_until
                self._banned_until = max(self._banned_until, fact.until or 0.0)
        elif fact.outcome == "applied":
            self._applied(fact)
        elif fact.outcome == "foreign":
            self.foreign[fact.nonce] = None
        elif fact.outcome == "rejected":
            if fact.expected_nonce > fact.nonce:
                self.rejected[fact.nonce] = fact
            else:
                self.world.sometimes.hit("rejection that did not consume its nonce")

    def _is_its_recovery(self, incident: Incident) -> bool:
        """Whether a host that refuses used numbers refuses the bytes that used this one: so it tells what became of
        them.
        """
        if incident.incident != "replay" or self.world.kind.repeated != "refused":
            return False
        entry = {**self.applied, **self.rejected}.get(incident.nonce or 0)
        rows = self.world.database.rows(
            "SELECT change_id FROM nonce_requests WHERE nonce = ? AND status = 'SENT'", incident.nonce
        )
        self.world.sometimes.hit("a used number came again")
        return bool(entry and entry.body and rows == [(entry.body["event_id"],)])

    def _applied(self, entry: Entry) -> None:
        assert entry.body is not None
        change_id = int(entry.body["event_id"])
        self.applied[entry.nonce] = entry
        self.rejected.pop(entry.nonce, None)  # of its life before OldHost was restored: no excuse for this one
        if entry.late:
            self.world.sometimes.hit("late apply")
        row = self.world.database.rows(
            "SELECT change_id, status, body FROM nonce_requests WHERE nonce = ?", entry.nonce
        )
        if not row or row[0][1] != "SENT" or row[0][0] != change_id:
            self.fail(
                f"OldHost applied change {change_id} with nonce {entry.nonce}; the ledger has {row and row[0][:2]}"
            )
        elif hashlib.sha256(row[0][2]).hexdigest() != entry.raw_sha256:
            self.fail(f"nonce {entry.nonce} was sent with other bytes than it is bound to")
        epoch = self.epoch_of_connection.get(entry.connection or 0, 0)
        if epoch < self.reconciled:
            self.fail(
                f"OldHost applied nonce {entry.nonce} of epoch {epoch} after epoch {self.reconciled} had compared"
            )
        self._count(change_id, entry)

    def _count(self, change_id: int, entry: Entry) -> None:
        if self._outcomes.get(change_id) == "WITHDRAWN":
            self.fail(f"change {change_id} was withdrawn, and OldHost applied it")
        times = self.times_applied[change_id] = self.times_applied.get(change_id, 0) + 1
        if times > 1 and not self.meddled and change_id not in self.misjudged:
            self.fail(f"I2: change {change_id} was applied {times} times")
        assert entry.body is not None
        entity = (str(entry.body["entity_type"]), str(entry.body["entity_id"]))
        newest = self.newest_of.get(entity, 0)
        held = self.first_dead.get(entity, change_id) < change_id and entry.body["event_type"] not in NEVER_HELD
        excused = change_id in self.world.retried or held or self.meddled
        if change_id < newest and not excused:
            self.fail(f"I4: change {change_id} of {entity} reached OldHost after {newest}")
        self.newest_of[entity] = max(newest, change_id)

    # ----------------------------------------------------------------------------------------------------------- ledger

    def statement(self, statement: str, values: tuple[Any, ...]) -> None:
        self.first_come.statement(statement, values)
        table = _written(statement)
        if not table:
            return
        self._touched.add(table)
        if statement == FORGET_PENDING:
            self.world.sometimes.hit("pending fate written later")
        if statement == REOPEN_CHANGE:
            self.world.retried[values[0]] = None
        if statement in {REOPEN_CHANGE, DISCARD_CHANGE, CONFIRM_CHANGE}:
            self._decided_on(int(values[0]), has_it=statement == CONFIRM_CHANGE)
        if table == "outbox_events":
            self.has_inserted |= statement.startswith("INSERT")
        elif table == "nonce_requests":
            if "SET status = 'SENT'" in statement:
                self._marked_with_offset = self.world.database_offset
            if UNCONFIRMED in values:
                self.world.sometimes.hit("ambiguous, found applied")

    def _decided_on(self, change_id: int, *, has_it: bool) -> None:
        """Operators look whether OldHost has an unsure change; some only guess, and what follows is not our fault."""
        if has_it:
            self.world.sometimes.hit("an unsure change confirmed")
        if has_it != bool(self.times_applied.get(change_id)):
            self.misjudged[change_id] = None

    def committed(self) -> None:
        touched, self._touched = self._touched, set()
        if "nonce_requests" in touched:
            self._look_at_rows()
        if "outbox_events" in touched:
            self._look_at_outcomes()

    def _look_at_rows(self) -> None:
        rows = self.world.database.rows(
            "SELECT nonce, change_id, status, body FROM nonce_requests WHERE nonce > ?", self._floor
        )
        found = {nonce: (change_id, status, body) for nonce, change_id, status, body in rows}
        for nonce in sorted({*self._rows, *found}):
            self._look_at_row(nonce, self._rows.get(nonce), found.get(nonce))
        self._rows = found
        sent = [nonce for nonce, (_, status, _) in sorted(found.items()) if status == "SENT"]
        if len(sent) > 2 and not self.meddled:
            self.fail(f"I6: {len(sent)} operations are in doubt: {sent}")
        while not self.meddled and self._rows.get(self._floor + 1, (0, ""))[1] == "APPLIED":
            self._floor += 1
            del self._rows[self._floor]

    def _look_at_row(self, nonce: int, old: tuple[int, str, bytes] | None, new: tuple[int, str, bytes] | None) -> None:
        before, after = old and old[1], new and new[1]
        if before == after and old == new:
            return
        if old and new is None:
            self.first_come.gave_back(old[0])
        if (before, after) not in LEGAL and not self._archived(nonce, old) and not self.meddled:
            self.fail(f"nonce {nonce} went from {before} to {after}")
        if old and new and before != "RESERVED" and old[2] != new[2] and not self._archived(nonce, old):
            self.fail(f"nonce {nonce} was bound to change {old[0]} and is now bound to {new[0]}")
        if after == "APPLIED" and before != "APPLIED" and new:
            entry = self.applied.get(nonce)
            # Asked about a number, a host tells of another client's write what it tells of ours.
            foreign = {} if self.world.kind.plan.outcomes or self.world.kind.plan.proves_applied else self.foreign
            if self._is_confirmed(nonce) and (nonce in self.rejected or nonce in foreign):
                self.fail(f"I14: the ledger says that OldHost confirmed nonce {nonce}; it did not apply it")
            elif nonce in self.rejected or nonce in self.foreign:
                # What else used the nonce up while its answer was lost can't be told from an apply: a rejection, or
                # somebody else's write. OldHost's protocol has no way to ask; other kinds of host tell.
                if self.world.kind.tells_rejections and not self.meddled and not self._is_adopted(nonce):
                    self.fail(f"I14: nonce {nonce} counts as applied; OldHost tells that it has rejected it")
                self.mistaken[new[0]] = None
                self.world.sometimes.hit("a lost rejection counted as applied")
            elif self.meddled:
                pass
            elif entry is None or entry.body is None or int(entry.body["event_id"]) != new[0]:
                self.fail(f"the ledger says that nonce {nonce} is applied; OldHost has not")
        if after == "UNSURE" and before != "UNSURE":
            self.world.sometimes.hit("a used nonce with an unlisted answer: unsure")
            if nonce not in {**self.applied, **self.rejected, **self.foreign} and not self.meddled:
                self.fail(f"the ledger says that nonce {nonce} is used; OldHost has not used it")
        if after == "FAILED" and before != "FAILED" and nonce not in self.rejected and not self.meddled:
            self.fail(f"the ledger says that nonce {nonce} was rejected; OldHost did not")

    def _is_confirmed(self, nonce: int) -> bool:
        """Whether the row says that an answer of OldHost called it applied."""
        ((answer, said_send, sends),) = self.world.database.rows(
            "SELECT answer, said_send, sends FROM nonce_requests WHERE nonce = ?", nonce
        )
        if sends and said_send == sends and answer != "applied":  # 0: none counts, and an operator decided
            self.fail(f"I14: nonce {nonce} counts as applied, though a complete answer did not say so")
        return bool(answer == "applied")

    def _is_adopted(self, nonce: int) -> bool:
        """By an operator's word."""
        ((answer,),) = self.world.database.rows("SELECT answer FROM nonce_requests WHERE nonce = ?", nonce)
        return bool(answer == ADOPTED)

    def _archived(self, nonce: int, old: tuple[int, str, bytes] | None) -> bool:
        """An operator's decision, or a rejection that gave the nonce back."""
        if old is None:
            return False
        return bool(
            self.world.database.rows(
                "SELECT 1 FROM nonce_requests_archive WHERE nonce = ? AND change_id = ?", nonce, old[0]
            )
        )

    def _look_at_outcomes(self) -> None:
        rows = self.world.database.rows(
            "SELECT id, outcome, priority_class, entity_type, entity_id, unproven FROM outbox_events"
        )
        newest = max(self._outcomes, default=0)
        for change_id, outcome, priority_class, entity_type, entity_id, unproven in rows:
            if change_id < newest and change_id not in self._outcomes:
                self.world.sometimes.hit("id committed out of order")
            before = self._outcomes.get(change_id)
            if before == outcome:
                self._outcomes[change_id] = outcome
                continue
            if before not in {None, "DEAD"} and not self.meddled:
                self.fail(f"I5: change {change_id} was {before} and became {outcome}")
            had = change_id in self.times_applied and change_id not in self.misjudged
            if outcome == "DEAD" and not unproven and had and not self.meddled:
                self.fail(f"I14: change {change_id} is said to be rejected; OldHost has it")
            if outcome == "WITHDRAWN":
                self._withdrawn(change_id)
            if outcome == "DEAD":
                entity = (entity_type, entity_id)
                self.first_dead[entity] = min(self.first_dead.get(entity, change_id), change_id)
            if outcome in {"SUPERSEDED", "NO_OP", "STALE"} and priority_class != "LWW":
                self.fail(f"I2: change {change_id}, {priority_class}, became {outcome}")
            if outcome in {"NO_OP", "STALE", "SUPERSEDED"}:
                self.world.sometimes.hit({"NO_OP": "no-op", "STALE": "stale", "SUPERSEDED": "superseded"}[outcome])
            self._outcomes[change_id] = outcome

    def _withdrawn(self, change_id: int) -> None:
        bound = self.world.database.rows("SELECT nonce, status FROM nonce_requests WHERE change_id = ?", change_id)
        had = change_id in self.times_applied and change_id not in self.misjudged
        if bound or (had and not self.meddled):
            self.fail(
                f"change {change_id} is withdrawn; it has {bound}, OldHost {self.times_applied.get(change_id, 0)}"
            )

    # ------------------------------------------------------------------------------------------------------------ wire

    def before_write(self, data: bytes, epoch_now: int, send_within_s: float) -> None:
        """A request is about to leave: its row is SENT, a moment ago, and says these bytes."""
        if (number := number_of(data)) is None:
            return
        nonce = self.world.oldhost.host._nonce(number)
        rows = self.world.database.rows(
            "SELECT status, sent_at, body, epoch, sends FROM nonce_requests WHERE nonce = ?", nonce
        )
        if not rows or rows[0][0] != "SENT":
            self.fail(f"nonce {nonce} goes on the wire while the ledger has it {rows[0][0] if rows else 'not at all'}")
            return
        _, sent_at, body, epoch, sends = rows[0]
        age = self.world.hub.now + self._marked_with_offset - sent_at / 1_000_000
        if age > send_within_s + 0.001:
            self.fail(f"nonce {nonce} goes on the wire {age:.3f} s after it was marked SENT")
        if not data.endswith(body):
            self.fail(f"nonce {nonce} goes on the wire with other bytes than it is bound to")
        if epoch > self._sent_again.get(nonce, epoch) and sends > 1:
            self.world.sometimes.hit("ambiguous, not applied and sent again")
        self._sent_again[nonce] = epoch

    # ---------------------------------------------------------------------------------------------------------- machine

    def watch(self, machine: Machine) -> None:
        if not machine.loaded or self.world.temporal.follows_a_reset:
            self._due.clear()
        take, add = machine.coalescer.take, machine.coalescer.add
        vars(machine)["watcher"] = self
        machine.send_ended = partial(self._send_ended, machine, machine.send_ended)  # type: ignore[method-assign]
        machine.coalescer.take = lambda *given: self._taken(machine.coalescer, take(*given))  # type: ignore[method-assign]
        machine.coalescer.add = (  # type: ignore[method-assign]
            lambda ref, now_ms: self._added(machine.coalescer, ref, now_ms, add)
        )

    def _send_ended(
        self,
        machine: Machine,
        end: Callable[..., None],
        number: int,
        event: SendEnded | SendFailed,
        *given: Any,
        **more: Any,
    ) -> None:
        self.first_come.ended(number)
        if isinstance(event, SendEnded) and number not in machine.in_flight.sends:
            self.world.sometimes.hit("a send that was given up reported after all")
        end(number, event, *given, **more)

    def _taken(self, coalescer: Coalescer, chain: list[PendingOperation]) -> list[PendingOperation]:
        if len(chain) > 1 or (chain and chain[0].ref.priority_class is PriorityClass.LWW and not chain[0].ready):
            self.world.sometimes.hit("order inheritance used")
        if len(chain) == 1 and chain[0].ref.priority_class is not PriorityClass.EMERGENCY and chain[0].ready:
            oldest = coalescer.lanes[chain[0].ref.priority_class].oldest()
            if oldest is not None and coalescer.waiting[oldest[1]].first_at_ms < chain[0].first_at_ms:
                self.world.sometimes.hit("a property's turn before an older change")
        return chain

    def _added(self, coalescer: Coalescer, ref: ChangeRef, now_ms: int, add: Any) -> Added:
        held_id = coalescer.newest_waiting(ref.key)
        held = coalescer.waiting.get(held_id) if held_id else None
        due = held.due_at_ms if held else 0
        ready = bool(held and held.ready)
        added: Added = add(ref, now_ms)
        if (
            held
            and ref.change_id < held.ref.change_id
            and (coalescer.waiting.get(held.ref.change_id) is not held or held.due_at_ms != due)
        ):
            self.fail(f"trap 6: the older change {ref.change_id} moved the timer of {held.ref.change_id}")
        if added is Added.REPLACED_OLDER and ready:
            self.world.sometimes.hit("superseded in the lane")
        return added

    def decided(self, machine: Machine, decided: list[Action], now_ms: int) -> list[Action]:
        coalescer = machine.coalescer
        if "second ban" in machine.breaker.reason and self._bans < 2:
            self.fail(f"the writer halted for a second ban; OldHost had begun {self._bans}")
        if any(hold.left for hold in coalescer.holds.values()):
            self.world.sometimes.hit("hold after a rejection")
        can_go = [
            entry for entry in coalescer.waiting.values()
            if (entry.ready or entry.due_at_ms <= now_ms) and entry.ref.entity not in coalescer.parked
        ]  # fmt: skip
        if coalescer.parked:
            self.world.sometimes.hit("a change that waits apart")
        if machine.loading.part is not None and any(isinstance(action, Send) for action in decided):
            self.world.sometimes.hit("sent while a rebuild went on")
        urgent = [entry for entry in can_go if entry.ref.priority_class is PriorityClass.EMERGENCY]
        self.first_come.decided(machine, decided, min((entry.ref.change_id for entry in urgent), default=None))
        for action in decided:
            if isinstance(action, Send) and urgent:
                sent = [entry for one in action.change_ids if (entry := machine.in_flight.get(one))]
                bound = any(entry.ref.change_id in machine.in_flight.bound for entry in sent)
                way_made_for = {
                    entry.ref.entity for entry in coalescer.waiting.values()
                    if entry.ref.priority_class is PriorityClass.EMERGENCY
                }  # fmt: skip
                if not bound and not any(
                    entry.ref.priority_class is PriorityClass.EMERGENCY or entry.ref.entity in way_made_for
                    for entry in sent
                ):
                    self.fail(f"I8: {label_of(sent)} goes while emergency {urgent[0].ref.change_id} could")
        busy = len(machine.in_flight.sends) >= 2 or machine.session.bound_is_cut
        if machine.may_send and can_go and not busy:
            self.fail(f"I8: the writer idles while change {can_go[0].ref.change_id} could go")
        # One that was sent and is signalled again, because the relay's mark was lost, waits anew until its fate is
        # looked up.
        self._due = {change_id: due for change_id, due in self._due.items() if change_id in coalescer.waiting}
        for entry in coalescer.waiting.values():
            due = self._due.setdefault(entry.ref.change_id, entry.due_at_ms)
            if not entry.ready and entry.due_at_ms > due:
                self.fail(f"trap 6: the timer of change {entry.ref.change_id} was restarted, though nothing newer came")
            latest = entry.first_at_ms + machine.policy.max_wait_ms
            if not entry.ready and entry.due_at_ms > latest:
                self.fail(f"trap 7: change {entry.ref.change_id} is held beyond the longest wait")
        return decided


def number_of(data: bytes) -> int | None:
    """Of an operation, by HTTP or as a frame; None: it is none."""
    if data.startswith(b"POST /oldhost/sync"):
        return int(data.split(b"X-Nonce: ", 1)[1].split(b"\r\n", 1)[0])
    found = OPERATION_FRAME.match(data)
    return None if found is None else int(found[1])


def look_at_dead_letters(database: MemoryDatabase) -> None:
    """As a relay does all the time: their alerts follow the outbox."""
    with PlainEngine(database).connect() as connection:
        keep_dead_letter_alerts(connection, "oldhost")  # type: ignore[arg-type]  # as much of a Connection as it uses
        connection.commit()


def after_healing(world: Any) -> list[str]:
    """What is wrong at the end; nothing, if all promises were kept."""
    wrong: list[str] = []
    look_at_dead_letters(world.database)
    rows = world.database.rows(
        "SELECT id, idempotency_key, entity_type, entity_id, event_type, payload, priority_class, outcome, nonce "
        "FROM outbox_events ORDER BY id"
    )
    unproven = {row[0] for row in world.database.rows("SELECT id FROM outbox_events WHERE unproven = 1")}
    always: Always = world.always
    by_key = {row[1]: row for row in rows}
    by_id = {row[0]: row for row in rows}
    wrong += [
        f"change {wish.change_id} was promised and is not there"
        for wish in world.applications.wishes
        if wish.change_id is not None
        and (wish.change_id not in by_id if wish.keyless else by_key.get(wish.key, (None,))[0] != wish.change_id)
    ]
    for change_id, _, entity_type, entity_id, event_type, _, priority_class, outcome, nonce in rows:
        what = f"change {change_id} ({priority_class} {entity_type} {entity_id} {event_type})"
        if outcome is None:
            wrong.append(f"{what} has no fate")
        times = always.times_applied.get(change_id, 0)
        if outcome == "APPLIED" and change_id not in {*unproven, *always.mistaken} and not times:
            wrong.append(f"I14: {what} is said to be applied, and confirmed; OldHost never had it")
        if change_id in always.mistaken or change_id in always.misjudged:
            continue
        if outcome == "APPLIED" and (times != 1 or always.applied.get(nonce) is None) and not always.meddled:
            wrong.append(f"{what} is said to be applied; OldHost has it {times} times")
        if outcome not in {"APPLIED", None} and times and not always.meddled:
            wrong.append(f"{what} is {outcome}, yet OldHost has it")
        if outcome == "DEAD" and not _is_told_of(world, change_id):
            wrong.append(f"{what} is a dead letter that nobody was told of")
    if not always.meddled:
        nonces = sorted({*always.applied, *always.rejected})
        first = world.first_nonce
        if nonces != list(range(first, first + len(nonces))):
            wrong.append(f"OldHost's nonces are not an unbroken row: {nonces}")
    adopted, rows = _adopted(world), standing(world.database, rows)
    wrong += _states(world, rows, adopted) + _shadows(world, rows)
    return wrong + fields.differences(world, rows, adopted)


def _shadows(world: Any, rows: list[Any]) -> list[str]:
    """The shadow is what the newest changes say, whatever became of them, but for those withdrawn or refused."""
    said: dict[tuple[str, str], dict[str, Any]] = {}
    for _, _, entity_type, entity_id, event_type, payload, _, outcome, _ in rows:
        if outcome not in {"REFUSED", "STALE", "SUPERSEDED"}:
            said.setdefault((entity_type, entity_id), {})[event_type] = json.loads(payload)
    shown = world.database.rows("SELECT 'unit', id, state FROM units UNION SELECT entity_type, id, state FROM entities")
    return [
        f"the shadow of {entity} is {state}, the newest changes say {said.get(entity)}"
        for entity, state in [((kind, name), state) for kind, name, state in shown]
        if json.loads(state) != said.get(entity, {})
    ]


def _is_told_of(world: Any, change_id: int) -> bool:
    """Whether an open alert counts this dead letter: all of its reason have one."""
    ((error,),) = world.database.rows("SELECT error FROM outbox_events WHERE id = ?", change_id)
    cause = f"dead-letters:{cause_of(error)}"
    return bool(world.database.rows("SELECT 1 FROM alerts WHERE is_open = 1 AND dedupe_key = ?", cause))


def _adopted(world: Any) -> dict[int, None]:
    """Changes that OldHost may lack by an operator's decision: of the operations in doubt, or lost,
    when its count was adopted."""
    rows = world.database.rows(
        "SELECT change_id FROM nonce_requests_archive WHERE reason = 'OldHost''s count was adopted' "
        "UNION SELECT change_id FROM nonce_requests WHERE answer = 'counted as applied by an operator''s decision'"
    )
    return {change_id: None for (change_id,) in rows}


def _states(world: Any, rows: list[Any], adopted: Collection[int]) -> list[str]:
    """I3 and I7: the shadow is what OldHost has, key by key, and every entity says so."""
    wrong: list[str] = []
    last: dict[tuple[str, str, str], Any] = {}
    newest: dict[tuple[str, str, str], int] = {}
    given_up: set[tuple[str, str, str]] = set()
    for change_id, _, entity_type, entity_id, event_type, payload, priority_class, outcome, _ in rows:
        key = (entity_type, entity_id, event_type)
        if outcome == "REFUSED":
            continue
        if outcome in {"DEAD", "DISCARDED"} or change_id in {**world.always.mistaken, **world.always.misjudged}:
            given_up.add(key)
        if change_id in world.retried and priority_class != "LWW":
            given_up.add(key)  # an operator sent it after newer ones (I4's exception)
        last[key], newest[key] = json.loads(payload), change_id
    records = world.oldhost.host.records
    for key, payload in sorted(last.items()):
        at_host = records.get(key)
        if key in given_up or newest[key] in adopted:
            continue
        if at_host is None or at_host.body["payload"] != payload:
            wrong.append(f"I3: {key} ends as {payload}, OldHost has {at_host and at_host.body['payload']}")
    return wrong + _sync_statuses(world, rows)


def _sync_statuses(world: Any, rows: list[Any]) -> list[str]:
    """I7: an entity is SYNC_FAILED while a change is dead, or was given up and is the newest of its event type."""
    newest = {(row[2], row[3], row[4]): row[7] for row in rows if row[7] != "REFUSED"}
    failed = {(row[2], row[3]) for row in rows if row[7] == "DEAD"}
    failed |= {key[:2] for key, outcome in newest.items() if outcome == "DISCARDED"}
    with PlainEngine(world.database).connect() as connection:
        shown = not_synced(connection, "oldhost")  # type: ignore[arg-type]  # as much of a Connection as it uses
    wrong = [f"I7: {one} ends as {shown.get(one, 'SYNCED')}" for one in sorted(failed - shown.keys())]
    return wrong + [f"I7: {one} ends as {status}" for one, status in sorted(shown.items()) if one not in failed]
