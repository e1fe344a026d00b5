"""An operation that OldHost refuses without using its nonce gives it up: others go first with that number.

That the nonce is free is proven by then: the protocol says so of `busy`, and otherwise the settle time is over and two
readings agree. One lost answer is followed by the same bytes, as always; a refusal in words, or a second lost answer,
by this; and so is a first lost answer while an emergency of another entity waits, which must not wait for the second.
The price: a copy that arrives later than the settle time takes a number that another operation has. So the
archive keeps every body that a number had, and if such a number is used without an answer that says applied, that
proves neither operation (I14): both are unsure.

How long a change waits apart follows from the archive, so the pauses outlive the writer's run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.ledger import Reservation
from oldhost_sync.policy.changes import ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.apart import REMEMBERED_SECONDS, is_given_up, pause_before_ms
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.completion import UNSURE, Ending, record_fate, shortened

APART = "set apart: OldHost refused it without using the nonce"
DECIDED = "set apart, and an operator has decided about its entity since"
_BEHIND = "the nonce before it was given to another operation"
# An operation that has another nonce by now loses that, too.
_MAY_BE_DONE = "a nonce that it had before was used, and another operation had that, too"
# A `resolve` has bound more than that again; these keep their numbers.
_IN_DOUBT_MAX = 2

_TRIES = (
    "SELECT COUNT(*) AS tries, COALESCE(SUM(nonce <= %s), 0) AS passed FROM nonce_requests_archive "
    "FORCE INDEX (ix_nonce_requests_archive_change) WHERE host = %s AND change_id = %s AND reason = %s"
)
# By entity, those since it last took an operation.
_RECENT = (
    "SELECT o.entity_type, o.entity_id, a.change_id, a.nonce, "
    "TIMESTAMPDIFF(MICROSECOND, a.archived_at, UTC_TIMESTAMP(6)) DIV 1000 AS ms_ago "
    "FROM nonce_requests_archive a FORCE INDEX (ix_nonce_requests_archive_archived) "
    "STRAIGHT_JOIN outbox_events o ON o.id = a.change_id WHERE a.host = %s AND a.reason = %s "
    "AND a.archived_at > UTC_TIMESTAMP(6) - INTERVAL %s SECOND AND a.nonce > COALESCE((SELECT MAX(n.nonce) "
    "FROM applied_states n FORCE INDEX (PRIMARY) WHERE n.host = a.host AND n.entity_type = o.entity_type "
    "AND n.entity_id = o.entity_id), 0)"
)
_LOOK_FOR_THEM = (
    "UPDATE nonce_ledger SET next_nonce = %s, apart_until = UTC_TIMESTAMP(6) + INTERVAL %s SECOND WHERE host = %s"
)
# Its tries are not counted any more; the bodies stay.
_FORGET_TRIES = "UPDATE nonce_requests_archive SET reason = %s WHERE host = %s AND change_id = %s AND reason = %s"
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
    "AND a.reason IN (%s, %s, %s, 'retried by an operator') ORDER BY a.id"
)


@dataclass(slots=True)
class Refusals:
    """The tries of one entity's operations, each refused without using its nonce. `ms_ago`: the newest one."""

    nonces: list[int] = field(default_factory=list)
    change_ids: dict[int, None] = field(default_factory=dict)
    ms_ago: int = REMEMBERED_SECONDS * 1000

    @property
    def tries(self) -> int:
        return len(self.nonces)

    def left_ms(self, change_id: int, priority_class: str) -> int:
        """How long this change of the entity still waits; 0 too if the database's clock was set back."""
        own, inherits = change_id in self.change_ids, priority_class == PriorityClass.LWW
        left: int = pause_before_ms(self.tries, own=own, inherits=inherits) - self.ms_ago
        return max(0, left) if self.ms_ago >= 0 else 0


class Pauses:
    """Which changes wait apart, for one reservation."""

    def __init__(self, connection: Connection, host: str, ledger: Any) -> None:
        self._refused = _refusals(connection, host) if ledger.has_apart else {}

    def holds(self, candidate: Any, entries: Reservation) -> bool:
        """Whether this change gets no nonce yet; `entries` then tells for how long."""
        refused = self._refused.get((candidate.entity_type, candidate.entity_id))
        left_ms = refused.left_ms(candidate.change_id, candidate.priority_class) if refused else 0
        if refused and left_ms:
            entries.apart.append([candidate.change_id, refused.tries, left_ms])
        return left_ms > 0


def _refusals(connection: Connection, host: str) -> dict[tuple[str, str], Refusals]:
    found: dict[tuple[str, str], Refusals] = {}
    for row in connection.exec_driver_sql(_RECENT, (host, APART, REMEMBERED_SECONDS)):
        refused = found.setdefault((row.entity_type, row.entity_id), Refusals())
        refused.nonces.append(row.nonce)
        refused.change_ids[row.change_id] = None
        refused.ms_ago = min(refused.ms_ago, row.ms_ago)
    return found


def forget_tries(connection: Connection, host: str, change: Any, why: str = DECIDED) -> None:
    """An operator has decided about a change, and `why` its tries are not counted: its entity begins anew."""
    refused = _refusals(connection, host).get((change.entity_type, change.entity_id), Refusals())
    connection.exec_driver_sql(_FORGET_TRIES, (why, host, change.id, APART))
    for each in refused.change_ids:
        connection.exec_driver_sql(_FORGET_TRIES, (DECIDED, host, each, APART))


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
    _give_up_nonce(connection, host, row.nonce, row.change_id, APART)
    connection.exec_driver_sql(_LOOK_FOR_THEM, (expected, REMEMBERED_SECONDS, host))
    counted = connection.exec_driver_sql(_TRIES, (last_used, host, row.change_id, APART)).one()
    own, passed = int(counted.tries), int(counted.passed)
    refused = _refusals(connection, host).get((row.entity_type, row.entity_id), Refusals())
    tries = max(own, refused.tries)
    if row.priority_class == PriorityClass.LWW:  # each newer state is the entity's next try
        own, passed = tries, max(passed, sum(nonce <= last_used for nonce in refused.nonces))
    if not is_given_up(own, passed):
        return [], [[row.change_id, tries]]
    words = row.answer or "no answer arrived"
    error = f"refused {quantity(own, 'time')} without using its nonce: {words}"
    ending = Ending.of(row, Outcome.DEAD, error=shortened(error))
    record_fate(connection, host, ending)
    return [ChangeResult(row.change_id, Outcome.DEAD.value, error="refused without using its nonce")], []


def _give_up_nonce(connection: Connection, host: str, nonce: int, change_id: int, why: str) -> None:
    """Take an unused nonce from its operation. Those marked behind it wait again, too: a gap would be left."""
    connection.exec_driver_sql(sql.ARCHIVE_ONE, (why, host, nonce, change_id))
    connection.exec_driver_sql(sql.DELETE_ONE, (host, nonce))
    connection.exec_driver_sql(sql.ARCHIVE_SENT_BEYOND, (_BEHIND, host, nonce))
    connection.exec_driver_sql(sql.DELETE_SENT_BEYOND, (host, nonce))


def waits_apart(connection: Connection, host: str, change_id: int) -> bool:
    """Whether the change, which has no fate, waits apart and has no nonce. For an act: under the ledger row's lock."""
    return connection.exec_driver_sql(_WAITS_APART, (host, change_id, APART)).first() is not None


def rest_of_pause_ms(connection: Connection, host: str, change: Any) -> int | None:
    """How long the change still waits apart (0: until its next turn); None: it does not."""
    if not waits_apart(connection, host, change.id):
        return None
    refused = _refusals(connection, host).get((change.entity_type, change.entity_id), Refusals())
    return refused.left_ms(change.id, change.priority_class)


def _another_emergency_waits(connection: Connection, host: str, row: Any) -> bool:
    return connection.exec_driver_sql(_URGENT, (host, row.entity_type, row.entity_id)).first() is not None


def others_of(connection: Connection, host: str, row: Any) -> list[Any]:
    """The other operations that had this nonce and may have been written."""
    reasons = (APART, DECIDED, _MAY_BE_DONE)
    return list(connection.exec_driver_sql(_OTHERS, (host, row.nonce, row.change_id, *reasons)).all())


def end_others(connection: Connection, host: str, others: list[Any], expected: int) -> list[ChangeResult]:
    """Their nonce is used, and no answer says by which: those without a fate are unsure. One that has got another
    nonce loses that, or it could be applied twice; unless OldHost has used that one, too.
    """
    fates = []
    for other in others:
        if other.outcome is not None or not _loses_its_nonce(connection, host, other, expected):
            continue
        ending = Ending.unsure(other, f"{UNSURE}OldHost has used nonce {other.nonce}, which two operations had")
        if record_fate(connection, host, ending):
            why = "its nonce was used, and another operation had it, too"
            fates.append(ChangeResult(other.change_id, Outcome.DEAD.value, other.nonce, why, unproven=True))
    return fates


def _loses_its_nonce(connection: Connection, host: str, other: Any, expected: int) -> bool:
    """Whether the operation has no nonce any more."""
    if other.now_bound is None:
        return True
    doubts = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    if other.now_bound < expected or len(doubts) > _IN_DOUBT_MAX:
        return False
    _give_up_nonce(connection, host, other.now_bound, other.change_id, _MAY_BE_DONE)
    connection.exec_driver_sql(sql.SET_NEXT_NONCE, (other.now_bound, host))
    return True
