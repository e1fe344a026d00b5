"""What operators decide, made durable: the books change and who and why is kept, in one transaction.

Each decision locks the host's ledger row first, as every ending of a change does. A decision that makes no sense (any
more) changes nothing and says why. `decision_id` names one decision, so that its repetition after a lost answer finds
it done instead of refusing it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import ChangeRef, EntityKey
from oldhost_sync.store import decisions_sql as sql
from oldhost_sync.store import ledger_sql
from oldhost_sync.store.alerts import close_alert
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.outbox import as_ref
from oldhost_sync.store.pending_fates import RAISE_SEQUENCE, write_pending_fate
from oldhost_sync.store.precedence import RETRIED
from oldhost_sync.store.resolving import resolve
from oldhost_sync.store.settling import shortened

NOTED_ONLY = frozenset({"pause", "resume", "flush"})


@dataclass(frozen=True, slots=True)
class Act:
    """An operator's decision. `action`: halt, retry, discard, resolve, pause, resume or flush; `mode`: of resolve.

    `entity`: of a flush, None for all.
    """

    host: str
    action: str
    operator: str
    reason: str
    change_id: int | None = None
    mode: str | None = None
    decision_id: str = ""
    entity: EntityKey | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a decision did. `refused`: it did nothing, and why."""

    message: str = ""
    refused: str = ""
    ref: ChangeRef | None = None
    entity: EntityKey | None = None


def decide(connection: Connection, act: Act) -> Outcome:
    """Carry `act` out in the caller's transaction."""
    connection.exec_driver_sql(ledger_sql.CREATE_LEDGER, (act.host,))
    ledger = connection.exec_driver_sql(ledger_sql.LOCK_LEDGER, (act.host,)).one()
    done = _done_before(connection, act)
    if done is not None:
        return done
    outcome = _carry_out(connection, act, ledger)
    if not outcome.refused:
        record_act(
            connection,
            host=act.host,
            action=act.action,
            operator=act.operator,
            reason=act.reason,
            change_id=act.change_id,
            detail={"message": outcome.message, "mode": act.mode, "decision": act.decision_id}
            | ({"entity_type": act.entity.entity_type, "entity_id": act.entity.entity_id} if act.entity else {}),
        )
    return outcome


def _carry_out(connection: Connection, act: Act, ledger: ledger_sql.LedgerRow) -> Outcome:
    match act.action:
        case "retry":
            return _retry(connection, act)
        case "discard":
            return _discard(connection, act)
        case "resolve":
            return _resolve(connection, act, ledger)
        case "halt":
            connection.exec_driver_sql(ledger_sql.HALT, (None, shortened(act.reason), act.host))
            connection.exec_driver_sql(sql.UNCOUNT_FIRST_SEND, (act.host, act.change_id))
            return Outcome(message=f"halted: {act.reason}")
    if act.action in NOTED_ONLY:
        return Outcome(message="noted")
    return Outcome(refused=f"{act.action!r} is nothing that can be decided")


def _retry(connection: Connection, act: Act) -> Outcome:
    """The dead letter waits again and gets a new nonce; the row of the old one is kept as evidence."""
    row = _dead_letter(connection, act)
    if isinstance(row, Outcome):
        return row
    connection.exec_driver_sql(sql.ARCHIVE_OF_CHANGE, (RETRIED, act.host, act.change_id))
    connection.exec_driver_sql(sql.DELETE_OF_CHANGE, (act.host, act.change_id))
    connection.exec_driver_sql(sql.REOPEN_CHANGE, (act.change_id,))
    return _decided(connection, act, row, f"change {act.change_id} waits again")


def _discard(connection: Connection, act: Act) -> Outcome:
    row = _dead_letter(connection, act)
    if isinstance(row, Outcome):
        return row
    connection.exec_driver_sql(RAISE_SEQUENCE, (act.host,))
    connection.exec_driver_sql(sql.DISCARD_CHANGE, (act.change_id,))
    return _decided(connection, act, row, f"change {act.change_id} is given up")


def _resolve(connection: Connection, act: Act, ledger: ledger_sql.LedgerRow) -> Outcome:
    if ledger.halted is None:
        return Outcome(refused="the ledger is not halted: there is nothing to resolve")
    if act.mode not in {"resend", "adopt"}:
        return Outcome(refused="mode must be 'resend' or 'adopt'")
    return Outcome(message=resolve(connection, act.host, ledger, resend=act.mode == "resend"))


def _dead_letter(connection: Connection, act: Act) -> Row[tuple[object, ...]] | Outcome:
    if act.change_id is not None:
        write_pending_fate(connection, act.host, act.change_id)
    row = connection.exec_driver_sql(sql.CHANGE, (act.change_id, act.host)).one_or_none()
    if row is None:
        return Outcome(refused=f"there is no change {act.change_id} of {act.host}")
    if row.outcome != "DEAD":
        return Outcome(refused=f"change {act.change_id} is {row.outcome or 'still waiting'}, no dead letter")
    return row


def _decided(connection: Connection, act: Act, row: Row[tuple[object, ...]], message: str) -> Outcome:
    close_alert(connection, act.host, f"dead:{act.change_id}")
    return Outcome(message, ref=_ref(row) if act.action == "retry" else None, entity=_entity(row))


def _done_before(connection: Connection, act: Act) -> Outcome | None:
    """The answer again, when this very decision was carried out and only its answer was lost."""
    if not act.decision_id:
        return None
    found = connection.exec_driver_sql(sql.DECISION, (act.host, act.action, act.decision_id)).one_or_none()
    if found is None:
        return None
    row = connection.exec_driver_sql(sql.CHANGE, (act.change_id, act.host)).one_or_none()
    if row is None:
        return Outcome(found.message or "")
    waits_again = act.action == "retry" and row.outcome is None
    return Outcome(found.message or "", ref=_ref(row) if waits_again else None, entity=_entity(row))


def _ref(row: Row[tuple[object, ...]]) -> ChangeRef:
    return as_ref(row[:6])  # type: ignore[arg-type]  # the first six columns are a ref's


def _entity(row: Row[tuple[object, ...]]) -> EntityKey:
    return EntityKey(row.entity_type, row.entity_id)
