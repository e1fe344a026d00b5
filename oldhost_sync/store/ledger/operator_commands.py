"""Operators' decisions, made durable: ledger, outbox and audit are changed in one transaction.

Each decision locks the host's ledger row first, as each fate does. A decision that does not apply (any more) changes
nothing and is refused with the reason. `decision_id` identifies a decision, so that a repetition after a lost answer
gets the first answer and is not refused.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection, Row

from oldhost_sync.oldhost.ledger import NOT_ASKED, Count
from oldhost_sync.policy.changes import PriorityClass, WireRef, to_wire
from oldhost_sync.policy.rules.operator_act import END_PAUSE, Actor, ActRecorded, Channel, OperatorAct, actor_of
from oldhost_sync.store.audit import current_pause, record_act
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.fates import forget_tries, shortened, supersede_older, waits_apart
from oldhost_sync.store.ledger.halt import objection, resolve, show
from oldhost_sync.store.ledger.reservation import RETRIED
from oldhost_sync.store.outbox.outstanding_changes import as_ref
from oldhost_sync.store.outbox.pending_fates import AT_ONCE, RAISE_SEQUENCE, SEQUENCE, write_pending_fate
from oldhost_sync.store.transactions import Packet

NOTED_ONLY = frozenset({"pause", "resume", "flush"})
OTHER_HALT = (
    "this is not the halt that you were shown: somebody has decided about that one since. Nothing was decided; look "
    "again, then decide"
)

_CHANGE = (
    "SELECT id, priority_class, entity_type, entity_id, event_type, created_at, outcome, unproven FROM outbox_events "
    "WHERE id = %s AND host = %s FOR UPDATE NOWAIT"
)
REOPEN_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events "
    "SET outcome = NULL, processed_at = NULL, nonce = NULL, error = NULL, unproven = 0, fate_sequence = NULL "
    "WHERE id = %s AND outcome = 'DEAD'"
)
DISCARD_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = 'DISCARDED', processed_at = UTC_TIMESTAMP(6), "
    f"fate_sequence = {SEQUENCE} WHERE id = %s AND (outcome = 'DEAD' OR outcome IS NULL)"
)
# It stays unproven: an operator's word is no answer of OldHost.
CONFIRM_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6), error = NULL, "
    f"fate_sequence = {SEQUENCE} WHERE id = %s AND outcome = 'DEAD' AND unproven = 1"
)
# A decision is repeated within minutes, so only the last day is searched.
_DECISION = (
    "SELECT JSON_VALUE(detail, '$.message') AS message, JSON_VALUE(detail, '$.apart') AS apart FROM operator_audit "
    "WHERE host = %s AND created_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action = %s "
    "AND JSON_VALUE(detail, '$.decision') = %s LIMIT 1"
)

# One day: longer than a signature is valid.
_USED_NONCE = (
    "SELECT 1 FROM operator_audit WHERE host = %s AND created_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action = %s "
    "AND JSON_VALUE(detail, '$.nonce') = %s LIMIT 1"
)

# OldHost called it a replay, so another writer has used the nonce: a later expected nonce must not prove that it was
# applied (I2).
_UNCOUNT_FIRST_SEND = (
    f"UPDATE nonce_requests SET sends = 0, answer = '{sql.CALLED_A_REPLAY}' "
    "WHERE host = %s AND change_id = %s AND status = 'SENT' AND sends = 1 AND epoch <= %s"
)
_AWAITS_COUNT = "SELECT 1 FROM nonce_ledger WHERE host = %s AND halted IS NOT NULL AND last_applied_nonce IS NOT NULL"
_ADD_REASON = "UPDATE nonce_ledger SET halted = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"


def awaits_count(connection: Connection, host: str) -> bool:
    """Whether a resolve needs OldHost's expected nonce: there is a halt, and OldHost was asked for it before."""
    return connection.exec_driver_sql(_AWAITS_COUNT, (host,)).one_or_none() is not None


def decide(
    connection: Connection, act: OperatorAct, count: Count = NOT_ASKED, operator: Actor | None = None
) -> ActRecorded:
    """Carry out `act` in the caller's transaction. `count`: what OldHost expects now, for a resolve. `operator`: who
    acts, as far as the act's signature proves it; None: the signature was not checked.
    """
    connection.exec_driver_sql(sql.CREATE_LEDGER, (act.host,))
    ledger = connection.exec_driver_sql(sql.LOCK_LEDGER, (act.host,)).one()
    done = _done_before(connection, act)
    if done is not None:
        return done
    recorded = _carry_out(connection, act, ledger, count)
    if not recorded.refused:
        _audit(connection, act, recorded, operator or actor_of(act, (), now_ms=0))
    return recorded


def _audit(connection: Connection, act: OperatorAct, recorded: ActRecorded, operator: Actor) -> None:
    entity = act.entity_key
    about = {"entity_type": entity.entity_type, "entity_id": entity.entity_id} if entity else {}
    detail: dict[str, Any] = {"message": recorded.message, "mode": act.mode, "decision": act.decision_id} | about
    if act.until_ms and act.action == "pause":
        detail["until_ms"] = act.until_ms
    if recorded.apart:
        detail["apart"] = "yes"
    if operator.verified and act.signature is not None:
        if connection.exec_driver_sql(_USED_NONCE, (act.host, act.action, act.signature.nonce)).first():
            doubt = "its signature was used before"
            operator = Actor(operator.name, Channel.TEMPORAL, verified=False, doubt=doubt)
        else:
            detail["nonce"] = act.signature.nonce
    record_act(
        connection,
        host=act.host,
        action=_noted_as(act),
        operator=operator,
        reason=act.reason,
        change_id=act.change_id,
        detail=detail,
    )


def _carry_out(connection: Connection, act: OperatorAct, ledger: sql.LedgerRow, count: Count) -> ActRecorded:
    match act.action:
        case "retry":
            return _retry(connection, act)
        case "discard":
            return _discard(connection, act)
        case "confirm":
            return _confirm(connection, act)
        case "resolve":
            return _resolve(connection, act, ledger, count)
        case "halt":
            return _halt(connection, act, ledger)
    if act.action == END_PAUSE:
        return _end_pause(connection, act)
    if act.action in NOTED_ONLY:
        return ActRecorded(message="noted")
    return ActRecorded(refused=f"{act.action!r} is not an action that can be recorded")


def _noted_as(act: OperatorAct) -> str:
    """The act's name in the audit: a pause is over with a resume, whoever ends it."""
    return "resume" if act.action == END_PAUSE else act.action


def _end_pause(connection: Connection, act: OperatorAct) -> ActRecorded:
    pause = current_pause(connection, act.host)
    if pause is None or pause.until_ms != act.until_ms:
        return ActRecorded(refused="an operator has ended this pause, or paused anew")
    return ActRecorded(message="noted")


def _retry(connection: Connection, act: OperatorAct) -> ActRecorded:
    """The dead letter waits again and gets a new nonce; its old row is archived as evidence. What waits apart has no
    nonce any more, and is tried at once.
    """
    row = _undecided(connection, act)
    if isinstance(row, ActRecorded):
        return row
    sql.archive(connection, act.host, "change_id = %s", (act.change_id,), RETRIED)
    forget_tries(connection, act.host, row, RETRIED)
    if row.outcome is None:
        return _decided(act, row, f"change {act.change_id} is tried at once")
    connection.exec_driver_sql(REOPEN_CHANGE, (act.change_id,))
    return _decided(act, row, f"change {act.change_id} waits again")


def _discard(connection: Connection, act: OperatorAct) -> ActRecorded:
    row = _undecided(connection, act)
    if isinstance(row, ActRecorded):
        return row
    connection.exec_driver_sql(RAISE_SEQUENCE, (act.host,))
    connection.exec_driver_sql(DISCARD_CHANGE, (act.change_id,))
    if row.outcome is None and row.priority_class == PriorityClass.LWW:
        # The writer sent it in their place: else they would come back, behind newer changes of the entity.
        packet = Packet(connection)
        supersede_older(packet, row.id, (act.host, row.entity_type, row.entity_id, row.event_type))
        packet.run()
    forget_tries(connection, act.host, row)
    waited = ", which waited apart," if row.outcome is None else ""
    return _decided(act, row, f"change {act.change_id}{waited} is given up")


def _confirm(connection: Connection, act: OperatorAct) -> ActRecorded:
    """OldHost has it after all. Only an unsure letter: the answer to any other says that it was rejected."""
    row = _dead_letter(connection, act)
    if isinstance(row, ActRecorded):
        return row
    if not row.unproven:
        why = f"OldHost rejected change {act.change_id}, so it can't be confirmed: retry or discard it"
        return ActRecorded(refused=why)
    connection.exec_driver_sql(RAISE_SEQUENCE, (act.host,))
    connection.exec_driver_sql(CONFIRM_CHANGE, (act.change_id,))
    return _decided(act, row, f"change {act.change_id} counts as applied")


def _halt(connection: Connection, act: OperatorAct, ledger: sql.LedgerRow) -> ActRecorded:
    """Record a halt. It is refused if a resolve has ended its epoch since: the operator has decided about it already.

    But not if it reports a send that OldHost never took and that still counts as a send: that was not decided.
    """
    of = act.epoch or ledger.epoch
    news = connection.exec_driver_sql(_UNCOUNT_FIRST_SEND, (act.host, act.change_id, of)).rowcount
    if of < (ledger.resolved_epoch or 0) and not news:
        return ActRecorded(refused="an operator has resolved a halt since this one was found; that covers this one too")
    known = str(ledger.halted or "") if ledger.resolve_mode is None else ""
    if not known:
        connection.exec_driver_sql(sql.HALT, (None, shortened(act.reason), act.host))
    elif str(shortened(act.reason)) not in known:
        connection.exec_driver_sql(_ADD_REASON, (shortened(f"{known} And: {act.reason}."), act.host))
    return ActRecorded(message=f"halted: {act.reason}")


def _resolve(connection: Connection, act: OperatorAct, ledger: sql.LedgerRow, count: Count) -> ActRecorded:
    if ledger.halted is None:
        return ActRecorded(refused="the ledger is not halted: there is nothing to resolve")
    if act.mode not in {"resend", "adopt"}:
        return ActRecorded(refused="mode must be 'resend' or 'adopt'")
    if act.expected is not None and not (count.never or ledger.last_applied_nonce is None):
        return ActRecorded(refused="OldHost itself tells which nonce it expects, so nobody else's word counts")
    if act.epoch and not (ledger.resolved_epoch or 0) <= act.epoch <= ledger.epoch:
        return ActRecorded(refused=OTHER_HALT)
    if act.expected is not None:
        count = Count(act.expected, never=True)
    changed = "" if count.nonce is None or count.never else objection(ledger, count.nonce)
    if changed and count.nonce is not None:
        return ActRecorded(
            refused=f"{changed} Look again, then decide",
            halted=show(connection, act.host, ledger, count.nonce, changed),
        )
    return ActRecorded(message=resolve(connection, act.host, ledger, act.mode, count), epoch=ledger.epoch + 1)


def _dead_letter(connection: Connection, act: OperatorAct) -> Row[tuple[object, ...]] | ActRecorded:
    row = _undecided(connection, act)
    if isinstance(row, ActRecorded) or row.outcome is not None:
        return row
    return ActRecorded(refused=f"change {act.change_id} is not a dead letter: it waits apart; retry or discard it")


def _undecided(connection: Connection, act: OperatorAct) -> Row[tuple[object, ...]] | ActRecorded:
    """The dead letter, or the change that waits apart (it has no fate)."""
    if act.change_id is not None:
        write_pending_fate(connection, act.host, act.change_id)
    row = connection.exec_driver_sql(_CHANGE, (act.change_id, act.host)).one_or_none()
    if row is None:
        return ActRecorded(refused=f"there is no change {act.change_id} of {act.host}")
    apart = row.outcome is None and waits_apart(connection, act.host, row.id)
    if row.outcome != "DEAD" and not apart:
        return ActRecorded(
            refused=f"change {act.change_id} is not a dead letter: it is {row.outcome or 'still waiting'}"
        )
    return row


def _decided(act: OperatorAct, row: Row[tuple[object, ...]], message: str) -> ActRecorded:
    ref = _ref(row) if act.action == "retry" else None
    return ActRecorded(message=message, ref=ref, entity=_entity(row), apart=row.outcome is None)


def _done_before(connection: Connection, act: OperatorAct) -> ActRecorded | None:
    """The first answer, if this decision was carried out already (its answer was lost)."""
    if not act.decision_id:
        return None
    recorded = connection.exec_driver_sql(_DECISION, (act.host, _noted_as(act), act.decision_id)).one_or_none()
    if recorded is None:
        return None
    noted = _noted_as(act)
    if noted in {"pause", "resume"} and (current_pause(connection, act.host) is None) != (noted == "resume"):
        # A run that was reset repeats its messages; the writer's state must agree with the ledger.
        return ActRecorded(refused=f"this {noted} was carried out and a later act has undone it")
    row = connection.exec_driver_sql(_CHANGE, (act.change_id, act.host)).one_or_none()
    if row is None:
        return ActRecorded(message=recorded.message or "")
    if row.outcome == "DEAD":  # it was rejected again since, and holds its entity
        return ActRecorded(message=recorded.message or "")
    waits_again = act.action == "retry" and row.outcome is None
    ref = _ref(row) if waits_again else None
    return ActRecorded(message=recorded.message or "", ref=ref, entity=_entity(row), apart=recorded.apart is not None)


def _ref(row: Row[tuple[object, ...]]) -> WireRef:
    return to_wire(as_ref(row[:6]))  # the first six columns are a ref's


def _entity(row: Row[tuple[object, ...]]) -> list[str]:
    return [row.entity_type, row.entity_id]
