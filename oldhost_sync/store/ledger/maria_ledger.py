"""The nonce ledger in MariaDB: which session may send, which nonce is bound to which bytes, and how each ended.

Every transaction that moves nonces first locks the host's ledger row and compares the epoch: takeovers, reservations,
SENT marks and answers of one host are serialized, and a stale epoch can write nothing in between (trap 2); at several
servers of a cluster, nothing that precedes a send (see `fence.write_sending`). Times are the database's. If the result
of a COMMIT is lost, the session gets :class:`LedgerUnavailable` and closes; recovery then reads what was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

from sqlalchemy.engine import Connection, Engine, Row
from sqlalchemy.exc import DBAPIError

from oldhost_sync.drivers.events import Applied, Said
from oldhost_sync.drivers.mapping import OLDHOST, CodeMissing, HostMapping
from oldhost_sync.oldhost.errors import Fenced, InvariantViolated, LedgerHalted, LedgerUnavailable, check
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reconciled, Reservation, Reserved, TakenOver, consumed
from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeResult, EntityKey, Outcome
from oldhost_sync.store.errors import StoreError, is_the_values_fault
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.fates import (
    APPLIED,
    Ending,
    HasFate,
    Pauses,
    add_fate,
    end_used,
    others_of,
    record_fate,
    shortened,
)
from oldhost_sync.store.ledger.reconciliation import THIS_MACHINE, MachineClock, complete_halt, reconcile, take_over
from oldhost_sync.store.ledger.reservation import (
    CANDIDATES,
    OLDER_MAX,
    Before,
    Candidate,
    Precedence,
    entry_of,
    is_missing,
    is_new_loss,
    why_missing,
)
from oldhost_sync.store.ledger.statements import LedgerRow, lock, lock_sending, of_epoch, sending, write_sending
from oldhost_sync.store.mappings import mapping_of
from oldhost_sync.store.outbox.outstanding_changes import unix_ms
from oldhost_sync.store.transactions import Packet, run_in_transaction

T = TypeVar("T")

# Added to OldHost's `retry_after`, so that rounding never makes a probe at the end of a ban too early.
BAN_MARGIN = timedelta(seconds=0.5)


class MariaLedger:
    """The ledger of `host`; safe to use from several threads.

    `settle_time`: how long after a send OldHost may still apply it (timeouts, processing and late applies together).
    `clock`: detects steps of the database's clock.
    """

    def __init__(self, engine: Engine, host: str, settle_time: timedelta, clock: MachineClock = THIS_MACHINE) -> None:
        self._engine = engine
        self._clock = clock
        self._host = host
        self._settle_ms = round(settle_time.total_seconds() * 1000)
        self._mapping = OLDHOST

    # ---------------------------------------------------------------------------------------------- taking over

    def take_over(self, owner: str) -> TakenOver:
        # Here and in `reconcile` a second wait would outlast the opening's heartbeat: then nobody hears of the lock.
        return self._run(
            lambda connection: take_over(connection, self._host, owner, settle_ms=self._settle_ms, clock=self._clock),
            waits_again=False,
        )

    def adopt_first(self, epoch: int, expected: int, incarnation: str = "") -> None:
        def adopt(connection: Connection) -> None:
            row = lock(connection, self._host, epoch)
            check(row.next_nonce is None, f"the ledger already has a next nonce ({row.next_nonce})")
            connection.exec_driver_sql(sql.ADOPT, (expected, expected - 1, incarnation, self._host))

        self._run(adopt)

    # ---------------------------------------------------------------------------------------------- reconciling

    def reconcile(self, epoch: int, evidence: Evidence, *, final: bool = True) -> Reconciled:
        return self._run(
            lambda connection: reconcile(connection, self._host, epoch, evidence, final=final),
            waits_again=False,
        )

    # ------------------------------------------------------------------------------------------------ reserving

    def reserve(
        self, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int] | None = None
    ) -> Reservation:
        if not change_ids:
            return Reservation()
        known = accepted_at_ms or {}
        reserved = self._run(lambda connection: self._reserve(connection, epoch, change_ids, known))
        if isinstance(reserved, str):
            raise LedgerHalted(reserved)
        return reserved

    def _reserve(
        self, connection: Connection, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int]
    ) -> Reservation | str:
        """Returns the text of a halt instead, if a change was lost: the halt must be committed before it is raised."""
        ledger, rows = self._lock_and_read(connection, epoch, change_ids)
        candidates = {row.id: Candidate.of(row) for row in rows}
        created = {change_id: row.ref.accepted_at_ms for change_id, row in candidates.items()}
        missing = [
            change_id for change_id in change_ids if is_missing(created.get(change_id), accepted_at_ms.get(change_id))
        ]
        if any(is_new_loss(ledger, change_id, accepted_at_ms[change_id]) for change_id in missing):
            return self._halt_for_loss(connection, missing[0], created.get(missing[0]))
        entries = Reservation()
        for change_id in missing:
            other = candidates.pop(change_id, None)
            entries.older += [other.ref] if other is not None and other.outcome is None else []
        precedence, pauses = Precedence(connection, self._host, rows), Pauses(connection, self._host, ledger)
        mapping = self._mapping_of(connection, rows[0].mapping_now) if rows else OLDHOST
        fresh: list[Reserved] = []
        binding: set[int] = set()
        for change_id in change_ids:
            nonce = ledger.next_nonce + len(fresh)
            candidate = candidates.get(change_id)
            in_flight = partial(self._in_flight, connection, fresh)
            entry, ending = entry_of(change_id, candidate, nonce, mapping, in_flight)
            is_fresh = isinstance(entry, Reserved) and entry.nonce >= ledger.next_nonce
            # A no-op, too: an older change that the writer has not read yet would be sent after it.
            is_no_op = ending is not None and ending.outcome is Outcome.NO_OP
            before = precedence.before(change_id, binding) if is_fresh or is_no_op else None
            if before is not None and candidate is not None:
                entry = _refused(candidate, before, entries)
            elif ending is not None:
                record_fate(connection, self._host, ending)
                precedence.forget_outstanding()
            elif is_fresh and candidate is not None and pauses.holds(candidate, entries):
                entry = ChangeResult(change_id, WAITING)
            elif is_fresh and isinstance(entry, Reserved):
                fresh.append(entry)
                binding.add(change_id)
            entries.append(entry)
        self._bind(connection, epoch, fresh, ledger.next_nonce)
        return entries

    def _lock_and_read(
        self, connection: Connection, epoch: int, change_ids: Sequence[int]
    ) -> tuple[LedgerRow, list[Row[Any]]]:
        statement = CANDIDATES.format(ids=", ".join(["%s"] * len(change_ids)))
        found = connection.exec_driver_sql(statement, (*[self._host] * 4, *change_ids)).all()
        ledger = sending(of_epoch(found[0] if found else None, epoch))
        return ledger, [row for row in found if row.id is not None]

    def _mapping_of(self, connection: Connection, label: str | None) -> HostMapping:
        """The host's mapping, read anew only if it is another one than at the last reservation."""
        if (label or OLDHOST.label) != self._mapping.label:
            self._mapping = mapping_of(connection, self._host)
        return self._mapping

    def _in_flight(self, connection: Connection, fresh: Sequence[Reserved], candidate: Candidate) -> bool:
        entity = (candidate.entity_type, candidate.entity_id)
        if any((bound.entity_type, bound.entity_id) == entity for bound in fresh):
            return True
        return bool(connection.exec_driver_sql(sql.ENTITY_IN_FLIGHT, (self._host, *entity)).scalar())

    def check_known(self, epoch: int, change_id: int, accepted_at_ms: int) -> None:
        def look(connection: Connection) -> str | None:
            ledger = lock(connection, self._host, epoch)
            stored = connection.exec_driver_sql(sql.CREATED_AT, (change_id, self._host)).scalar()
            created = None if stored is None else unix_ms(stored)
            if is_missing(created, accepted_at_ms) and is_new_loss(ledger, change_id, accepted_at_ms):
                return self._halt_for_loss(connection, change_id, created)
            if ledger.losses_accepted_at is not None and ledger.losses_accepted_id is None:
                connection.exec_driver_sql(sql.ACCEPT_LOSSES, (change_id, self._host))
            return None

        why = self._run(look)
        if why is not None:
            raise LedgerHalted(why)

    def _halt_for_loss(self, connection: Connection, change_id: int, created_at_ms: int | None) -> str:
        why = why_missing(change_id, created_at_ms)
        connection.exec_driver_sql(sql.HALT, (None, shortened(why), self._host))
        return why

    def _bind(self, connection: Connection, epoch: int, fresh: Sequence[Reserved], next_nonce: int) -> None:
        if not fresh:
            return
        statement = sql.INSERT_RESERVED + ", ".join([sql.RESERVED_VALUES] * len(fresh))
        values = [
            value
            for bound in fresh
            for value in (
                self._host,
                bound.nonce,
                bound.idempotency_key,
                bound.change_id,
                epoch,
                bound.body,
                bound.mapping,
            )
        ]
        packet = Packet(connection)
        packet.add(statement, values)
        packet.require(
            sql.MOVE_NEXT_NONCE, (next_nonce + len(fresh), self._host, epoch, next_nonce), _next_nonce_changed
        )
        packet.commit()

    # ------------------------------------------------------------------------------- sending and recording

    def advance(
        self, epoch: int, answered: Answered | None, sent: Reserved | None, *, again: bool = False
    ) -> ChangeResult | None:
        def step(connection: Connection) -> ChangeResult | None:
            packet = Packet(connection)
            fate = self._fenced_record(packet, epoch, answered, sending=sent is not None)
            try:
                self._mark_and_commit(packet, epoch, sent, again=again)
            except HasFate:
                fate = self._present_fate(connection, fate)
                self._mark_and_commit(packet, epoch, sent, again=again)
            return fate

        return self._run(step)

    def release_nonces(self, epoch: int, answered: Answered | None, beyond: int) -> ChangeResult | None:
        def step(connection: Connection) -> ChangeResult | None:
            packet = Packet(connection)
            fate = self._fenced_record(packet, epoch, answered, sending=False)
            try:
                packet.run()
            except HasFate:
                fate = self._present_fate(connection, fate)
            written = connection.exec_driver_sql(sql.MAY_BE_WRITTEN_BEYOND, (self._host, beyond)).scalar()
            check(written is None, f"nonce {written} can't be released: it may have been used")
            self._release_beyond(connection, beyond, "another operation was sent before it")
            connection.exec_driver_sql(sql.SET_NEXT_NONCE, (beyond + 1, self._host))
            return fate

        return self._run(step)

    def uncount_send(self, epoch: int, marked: Reserved, said: Said | None = None) -> None:
        def step(connection: Connection) -> None:
            lock(connection, self._host, epoch)
            self._uncount(connection, epoch, marked, said)

        self._run(step)

    def note_answer(self, epoch: int, sent: Reserved, said: Said) -> None:
        def step(connection: Connection) -> None:
            lock(connection, self._host, epoch)
            self._note(connection, sql.NOTE_ANSWER, epoch, sent, said)

        self._run(step)

    def _uncount(self, connection: Connection, epoch: int, sent: Reserved, said: Said | None) -> None:
        connection.exec_driver_sql(sql.UNCOUNT_SEND, (sent.sends, self._host, sent.nonce, epoch))
        if said is not None:
            self._note(connection, sql.NOTE_REFUSAL, epoch, sent, said)

    def _note(self, connection: Connection, statement: str, epoch: int, sent: Reserved, said: Said) -> None:
        of_this_send = (self._host, sent.nonce, epoch)
        connection.exec_driver_sql(statement, (said.rejects, shortened(str(said)), *of_this_send))
        if said.refuses:
            connection.exec_driver_sql(sql.COUNT_REFUSAL, of_this_send)
        if said.used:
            connection.exec_driver_sql(sql.NOTE_USED, of_this_send)

    def _mark_and_commit(self, packet: Packet, epoch: int, sent: Reserved | None, *, again: bool) -> None:
        if sent is not None:
            self._mark_sent(packet, epoch, sent, again=again)
        packet.commit()

    def _mark_sent(self, packet: Packet, epoch: int, sent: Reserved, *, again: bool) -> None:
        values = (epoch, 0 if again else 1, self._host, sent.nonce, sent.change_id, epoch)
        if sent.sends and not again:  # keep when it was sent before, and how that ended
            kept = ("sent again: its earlier result was not known", self._host, sent.nonce, sent.change_id)
            packet.add(f"{sql.ARCHIVE}{sql.ONE}", kept)
        packet.require(sql.MARK_SENT, values, partial(self._not_marked, packet.connection, sent))

    def _not_marked(self, connection: Connection, sent: Reserved) -> NoReturn:
        status = connection.exec_driver_sql(sql.STATUS_OF, (self._host, sent.nonce)).scalar()
        if status is None:  # while this waited for the lock, the operation before it was recorded as not consumed
            raise Fenced(f"nonce {sent.nonce} was released: OldHost did not consume the nonce before it")
        raise InvariantViolated(f"nonce {sent.nonce} is not bound to change {sent.change_id} in this epoch")

    def _fenced_record(
        self, packet: Packet, epoch: int, answered: Answered | None, *, sending: bool
    ) -> ChangeResult | None:
        """The fence, and the answer. Recording that a nonce is used up is a fence itself."""
        if answered is None or not consumed(answered.answer):
            if sending:
                write_sending(packet, self._host, epoch)
            else:
                lock(packet.connection, self._host, epoch)
        return None if answered is None else self._record(packet, epoch, answered, sending=sending)

    def _record(self, packet: Packet, epoch: int, answered: Answered, *, sending: bool) -> ChangeResult:
        operation, answer = answered.operation, answered.answer
        if isinstance(answer, Applied) and answer.by_earlier_send:
            return self._record_used(packet, epoch, operation, sending=sending)
        if isinstance(answer, Applied):
            self._consume(packet, epoch, answered, "APPLIED", APPLIED, sending=sending)
            if answer.names_earlier_than(operation.nonce):
                packet.add(sql.COUNT_FELL, (operation.nonce, self._host))
            add_fate(packet, self._host, Ending.applied(operation), numbered=True)
            return ChangeResult(operation.change_id, Outcome.APPLIED.value, operation.nonce)
        reason = f"rejected: {answer.reason}"
        if consumed(answer):
            self._consume(packet, epoch, answered, "FAILED", reason, sending=sending)
            nonce = operation.nonce
        else:
            packet.run()
            self._archive_unconsumed(packet.connection, epoch, answered, reason)
            nonce = None
        dead = Ending.of(operation, Outcome.DEAD, nonce=nonce, error=answer.reason)
        add_fate(packet, self._host, dead, numbered=nonce is not None)
        return ChangeResult(operation.change_id, Outcome.DEAD.value, nonce, answer.reason)

    def _present_fate(self, connection: Connection, fate: ChangeResult | None) -> ChangeResult | None:
        """It was sent again after a restore of OldHost and keeps its earlier fate: if it was discarded, for example, it
        doesn't become a dead letter again.
        """
        if fate is None or fate.outcome == Outcome.APPLIED:
            return fate
        return _fates(connection, self._host, [fate.change_id])[0]

    def _consume(
        self, packet: Packet, epoch: int, answered: Answered, status: str, answer: str, *, sending: bool
    ) -> None:
        """Record that the nonce is used up, and how the operation ended."""
        nonce = answered.operation.nonce
        self._use_up(packet, epoch, nonce, sending=sending)
        values = (status, answered.ago_us, shortened(answer), self._host, nonce, epoch)
        packet.require(sql.COMPLETE, values, partial(_not_sent, nonce))

    def _record_used(self, packet: Packet, epoch: int, operation: Reserved, *, sending: bool) -> ChangeResult:
        """An earlier send has used the nonce, whatever was answered to it."""
        self._use_up(packet, epoch, operation.nonce, sending=sending)
        packet.run()
        connection = packet.connection
        self._uncount(connection, epoch, operation, None)
        sent = connection.exec_driver_sql(sql.SENT_ROWS, (self._host,)).all()
        row = next((row for row in sent if row.nonce == operation.nonce), None) or _not_sent(operation.nonce)
        others, following = others_of(connection, self._host, row), operation.nonce + 1
        return end_used(connection, self._host, row, others, following, repeated=True, numbered=True)[0]

    def _use_up(self, packet: Packet, epoch: int, nonce: int, *, sending: bool) -> None:
        """The nonce is used: a compare-and-set that locks the ledger's row, in one statement."""
        statement = sql.LAST_APPLIED_SENDING if sending else sql.LAST_APPLIED
        not_the_next = partial(self._not_the_next, packet.connection, epoch, nonce, sending=sending)
        packet.require(statement, (nonce, self._host, epoch, nonce - 1), not_the_next)

    def _not_the_next(self, connection: Connection, epoch: int, nonce: int, *, sending: bool) -> NoReturn:
        row = lock_sending(connection, self._host, epoch) if sending else lock(connection, self._host, epoch)
        last = row.last_applied_nonce
        raise InvariantViolated(f"nonce {nonce} was answered, but the last one used up is {last}, not {nonce - 1}")

    def _archive_unconsumed(self, connection: Connection, epoch: int, answered: Answered, reason: str) -> None:
        """OldHost says that it did not consume the nonce: the nonce is free again, and the row is archived as evidence
        (trap 16).

        So OldHost has applied no later nonce either. Operations marked SENT with later nonces were never applied, and
        sending them would leave a gap: their changes wait again, as do those that were only reserved.
        """
        operation = answered.operation
        values = ("FAILED", answered.ago_us, shortened(reason), self._host, operation.nonce, epoch)
        connection.exec_driver_sql(sql.COMPLETE, values)
        which = (operation.nonce, operation.change_id)
        archived = sql.archive(connection, self._host, sql.ONE, which, "its nonce was not consumed")
        check(archived == 1, f"nonce {operation.nonce} is not in the ledger, so it can't be released")
        self._release_beyond(connection, operation.nonce, "the nonce before it was not consumed")

    def _release_beyond(self, connection: Connection, nonce: int, reason: str) -> None:
        sql.archive(connection, self._host, sql.SENT_BEYOND, (nonce,), reason)
        connection.exec_driver_sql(sql.RELEASE_RESERVED_BEYOND, (self._host, nonce))

    # ------------------------------------------------------------------------------------------ bans and halts

    def ban(
        self,
        epoch: int,
        seconds: float,
        *,
        refused: Reserved | None = None,
        said: Said | None = None,
        halt: str | None = None,
        expected: int | None = None,
    ) -> int:
        """Any session may record a ban; only one with the current epoch may change operations or halt because of it."""
        microseconds = round((timedelta(seconds=seconds) + BAN_MARGIN).total_seconds() * 1_000_000)

        def step(connection: Connection) -> int:
            row = connection.exec_driver_sql(sql.LOCK_LEDGER, (self._host,)).one()
            connection.exec_driver_sql(sql.BAN, (microseconds, self._host))
            if row.epoch == epoch and refused is not None:
                self._uncount(connection, epoch, refused, said)
            if row.epoch == epoch and refused is not None and halt is not None:
                connection.exec_driver_sql(sql.CALL_A_REPLAY, (self._host, refused.nonce, epoch))
            if row.epoch == epoch and halt is not None:
                connection.exec_driver_sql(sql.HALT, (expected, shortened(halt), self._host))
            return microseconds // 1000

        return self._run(step)

    def halt(self, epoch: int, reason: str, expected: int | None = None) -> None:
        def step(connection: Connection) -> None:
            lock(connection, self._host, epoch)
            connection.exec_driver_sql(sql.HALT, (expected, shortened(reason), self._host))

        self._run(step)

    def complete_halt(self, epoch: int, expected: int) -> str:
        return self._run(lambda connection: complete_halt(connection, self._host, epoch, expected))

    # ------------------------------------------------------------------------------------------------- reading

    def fates(self, change_ids: Sequence[int]) -> list[ChangeResult]:
        return self._run(lambda connection: _fates(connection, self._host, change_ids))

    def epoch(self) -> int:
        return self._run(lambda connection: connection.exec_driver_sql(sql.EPOCH, (self._host,)).scalar() or 0)

    def position(self) -> tuple[int, int | None]:
        def look(connection: Connection) -> tuple[int, int | None]:
            row = connection.exec_driver_sql(sql.POSITION, (self._host,)).one_or_none()
            return (0, None) if row is None else (row.host_base, row.next_nonce)

        return self._run(look)

    # ------------------------------------------------------------------------------------------------ transactions

    def _run(self, fn: Callable[[Connection], T], *, waits_again: bool = True) -> T:
        try:
            return run_in_transaction(self._engine, fn, waits_again=waits_again)
        except CodeMissing as error:  # no session is opened here from now on
            raise LedgerUnavailable(str(error)) from None
        except StoreError as error:
            raise LedgerUnavailable(f"{type(error).__name__}: {error}") from error
        except DBAPIError as error:
            if not is_the_values_fault(error):
                raise
            raise InvariantViolated(f"the database refused a ledger row: {error.orig}") from error


def _next_nonce_changed() -> NoReturn:
    raise InvariantViolated("the next nonce changed although its row was locked")


def _not_sent(nonce: int) -> NoReturn:
    raise InvariantViolated(f"nonce {nonce} was answered, but is not SENT in this epoch")


def _refused(candidate: Candidate, before: Before, entries: Reservation) -> ChangeResult:
    """The answer for a change that must wait; `entries` also gets what it waits for."""
    if before.dead:
        held = (EntityKey(candidate.entity_type, candidate.entity_id), before.dead)
        if held not in entries.held:
            entries.held.append(held)
        return ChangeResult(candidate.change_id, HELD)
    known = {ref.change_id for ref in entries.older}
    entries.older += [ref for ref in before.older if ref.change_id not in known][: OLDER_MAX - len(known)]
    return ChangeResult(candidate.change_id, WAITING)


def read_fates(engine: Engine, host: str, change_ids: Sequence[int]) -> list[ChangeResult]:
    """The fates of these changes."""
    return run_in_transaction(engine, lambda connection: _fates(connection, host, change_ids)) if change_ids else []


def _fates(connection: Connection, host: str, change_ids: Sequence[int]) -> list[ChangeResult]:
    if not change_ids:
        return []
    statement = sql.FATES.format(ids=", ".join(["%s"] * len(change_ids)))
    return [_fate(row) for row in connection.exec_driver_sql(statement, (host, *change_ids)).all()]


def _fate(row: sql.FateRow) -> ChangeResult:
    if row.status == "SENT":
        return ChangeResult(row.id, BOUND, row.request_nonce)
    if row.outcome is not None:
        return ChangeResult(row.id, row.outcome, row.nonce, row.error, unproven=bool(row.unproven))
    return ChangeResult(row.id, WAITING)
