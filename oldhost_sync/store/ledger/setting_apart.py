"""An operation that OldHost refuses without using its nonce gives it up: others go first with that number.

That the nonce is free is proven by then: the protocol says so of `busy`, and otherwise the settle time is over and two
readings agree. One lost answer is followed by the same bytes, as always; a refusal in words, or a second lost answer,
by this; and so is a first lost answer while an emergency of another entity waits, which must not wait for the second.
The price: a copy that arrives later than the settle time takes a number that another operation has. So the
archive keeps every body that a number had, and if such a number is used without an answer that says applied, that
proves neither operation (I14): both are unsure.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.policy.apart import is_given_up
from oldhost_sync.policy.changes import ChangeResult, Outcome
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.completion import Ending, record_fate, shortened
from oldhost_sync.store.ledger.used_nonce import UNSURE

APART = "set apart: OldHost refused it without using the nonce"
_BEHIND = "the nonce before it was given to another operation"
# A `resolve` has bound more than that again; these keep their numbers.
_IN_DOUBT_MAX = 2

_TRIES = (
    "SELECT COUNT(*) AS tries, COALESCE(SUM(nonce <= %s), 0) AS passed FROM nonce_requests_archive "
    "FORCE INDEX (ix_nonce_requests_archive_change) WHERE host = %s AND change_id = %s AND reason = %s"
)
# No nonce is bound to it: it was taken away, and no later try is under way.
_WAITS_APART = (
    "SELECT 1 FROM nonce_requests_archive a FORCE INDEX (ix_nonce_requests_archive_change) WHERE a.host = %s "
    "AND a.change_id = %s AND a.reason = %s AND NOT EXISTS (SELECT 1 FROM nonce_requests r "
    "WHERE r.host = a.host AND r.change_id = a.change_id) LIMIT 1"
)
_URGENT = (
    "SELECT 1 FROM outbox_events FORCE INDEX (ix_outbox_events_unrelayed) WHERE host = %s AND processed_at IS NULL "
    "AND priority_class = 'EMERGENCY' AND NOT (entity_type = %s AND entity_id = %s) LIMIT 1"
)
# The archive keeps the status: SENT, so it may have been written and no end of it is known.
_OTHERS = (
    "SELECT a.change_id, o.entity_type, o.entity_id, o.event_type, o.priority_class, a.nonce, o.outcome, "
    "(SELECT r.nonce FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) WHERE r.host = a.host "
    "AND r.change_id = a.change_id LIMIT 1) AS now_bound FROM nonce_requests_archive a "
    "FORCE INDEX (ix_nonce_requests_archive_nonce) STRAIGHT_JOIN outbox_events o ON o.id = a.change_id "
    "WHERE a.host = %s AND a.nonce = %s AND a.status = 'SENT' AND a.sends > 0 AND a.change_id <> %s "
    "AND a.reason IN (%s, 'retried by an operator') ORDER BY a.id"
)


def set_apart(
    connection: Connection, host: str, expected: int, last_used: int, sent: list[Any]
) -> tuple[list[ChangeResult], list[list[int]]]:
    """If the first operation from `expected` on must give up its nonce: its fate, if it becomes a dead letter; else it
    is named as waiting apart, with the number of its tries.
    """
    waiting = [row for row in sent if row.nonce >= expected]
    if not waiting or len(waiting) > _IN_DOUBT_MAX:
        return [], []
    row = waiting[0]
    gives_up = row.refused or row.sends > 1 or (row.sends and _another_emergency_waits(connection, host, row))
    if not gives_up:
        return [], []
    connection.exec_driver_sql(sql.ARCHIVE_ONE, (APART, host, row.nonce, row.change_id))
    connection.exec_driver_sql(sql.DELETE_ONE, (host, row.nonce))
    connection.exec_driver_sql(sql.ARCHIVE_SENT_BEYOND, (_BEHIND, host, row.nonce))
    connection.exec_driver_sql(sql.DELETE_SENT_BEYOND, (host, row.nonce))
    connection.exec_driver_sql(sql.SET_NEXT_NONCE, (expected, host))
    tries, passed = connection.exec_driver_sql(_TRIES, (last_used, host, row.change_id, APART)).one()
    if not is_given_up(int(tries), int(passed)):
        return [], [[row.change_id, int(tries)]]
    words = row.answer or "no answer arrived"
    error = f"refused {tries} times without using its nonce: {words}"
    ending = Ending.of(row, Outcome.DEAD, error=shortened(error))
    record_fate(connection, host, ending)
    return [ChangeResult(row.change_id, Outcome.DEAD.value, error="refused without using its nonce")], []


def waits_apart(connection: Connection, host: str, change_id: int) -> bool:
    """Whether the change, which has no fate, waits apart and has no nonce. For an act: under the ledger row's lock."""
    return connection.exec_driver_sql(_WAITS_APART, (host, change_id, APART)).first() is not None


def _another_emergency_waits(connection: Connection, host: str, row: Any) -> bool:
    return connection.exec_driver_sql(_URGENT, (host, row.entity_type, row.entity_id)).first() is not None


def others_of(connection: Connection, host: str, row: Any) -> list[Any]:
    """The other operations that had this nonce and may have been written."""
    return list(connection.exec_driver_sql(_OTHERS, (host, row.nonce, row.change_id, APART)).all())


def end_others(connection: Connection, host: str, others: list[Any]) -> list[ChangeResult]:
    """Their nonce is used, and no answer says by which: those without a fate or another nonce are unsure."""
    fates = []
    for other in others:
        if other.outcome is not None or other.now_bound is not None:
            continue
        ending = Ending.unsure(other, f"{UNSURE}OldHost has used nonce {other.nonce}, which two operations had")
        if record_fate(connection, host, ending):
            why = "its nonce was used, and another operation had it, too"
            fates.append(ChangeResult(other.change_id, Outcome.DEAD.value, other.nonce, why, unproven=True))
    return fates
