"""Fates: what a used nonce proves about its operation, and what a fate changes in the transaction that decides it; and
how an operation that OldHost refuses gives up its nonce.

OldHost uses a nonce for an apply and for a rejection. A complete answer that the protocol does not have decides between
them as far as it can: 4xx is a rejection; any other leaves it open, and an operator decides. Only if no complete answer
arrived, the operation counts as applied, unconfirmed (I14).

A fate is written to the outbox, to the changes that it supersedes, and to the applied state. Every caller holds the
lock of the host's ledger row, so one host's fates are decided one after the other, each on a snapshot that has all
earlier ones. All operations of the host need that row, so nothing here waits for a row that another transaction may
lock: units and entities are not written (their sync status is derived when it is read), and if the outbox row is
locked, the fate is kept in `pending_fates` for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sqlalchemy.engine import Connection

from oldhost_sync.drivers.events import OutcomeTold, ToldFate
from oldhost_sync.oldhost.errors import check
from oldhost_sync.oldhost.ledger import Reservation
from oldhost_sync.policy.changes import ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.apart import REMEMBERED_SECONDS, is_given_up, pause_before_ms
from oldhost_sync.store.columns import storable
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.outbox.pending_fates import (
    KEEP_FATE,
    KEEP_SUPERSEDED,
    NONE_PENDING,
    RAISE_SEQUENCE,
    SEQUENCE,
    at_once,
    each,
)
from oldhost_sync.store.transactions import Packet

# Fates that supersede older LWW changes of the same key: the change was sent, or OldHost had its state already.
SUPERSEDING = frozenset({Outcome.APPLIED, Outcome.NO_OP, Outcome.DEAD})

_RECORD_FATE = at_once(
    "UPDATE outbox_events SET outcome = %s, processed_at = UTC_TIMESTAMP(6), nonce = %s, error = %s, unproven = %s, "
    f"fate_sequence = {SEQUENCE} WHERE id = %s AND host = %s AND processed_at IS NULL AND {NONE_PENDING}",
    instead=KEEP_FATE,
)
# Read without a lock: a locking read would wait for a transaction that is recording a newer change.
_OLDER = (
    "SELECT id FROM outbox_events FORCE INDEX (ix_outbox_events_key) "
    "WHERE host = %s AND entity_type = %s AND entity_id = %s AND event_type = %s AND processed_at IS NULL "
    f"AND priority_class = 'LWW' AND id < %s AND {NONE_PENDING} ORDER BY id"
)
_SUPERSEDE = at_once(
    "UPDATE outbox_events SET outcome = 'SUPERSEDED', processed_at = UTC_TIMESTAMP(6), superseded_by = %s, "
    f"fate_sequence = {SEQUENCE} WHERE id IN (older.id) AND processed_at IS NULL",
    instead=KEEP_SUPERSEDED,
)
_SUPERSEDE_OLDER = each("older", _OLDER, _SUPERSEDE)
_UNBOUND = (
    "AND NOT EXISTS (SELECT 1 FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) "
    "WHERE r.host = outbox_events.host AND r.change_id = outbox_events.id) ORDER BY id"
)
_SUPERSEDE_UNBOUND = each("older", _OLDER.replace("ORDER BY id", _UNBOUND), _SUPERSEDE)
_REMEMBER = (
    "INSERT INTO applied_states "
    "(host, entity_type, entity_id, event_type, change_id, payload_hash, nonce, mapping, applied_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE "
    "change_id = GREATEST(change_id, VALUES(change_id)), payload_hash = VALUES(payload_hash), "
    "nonce = VALUES(nonce), mapping = VALUES(mapping), applied_at = VALUES(applied_at)"
)
# After a no-op, OldHost's state counts as that of the no-op: an older dead letter retried later is stale (I3).
_CONFIRM = (
    "UPDATE applied_states SET change_id = %s WHERE host = %s AND entity_type = %s AND entity_id = %s "
    "AND event_type = %s AND change_id < %s"
)

# No payload has this hash.
UNKNOWN = b""


@dataclass(frozen=True, slots=True)
class Ending:
    """A change and its fate. `payload_hash`, `nonce` and `mapping`: of the operation that OldHost applied. `unproven`:
    its nonce was used, and no answer says whether the operation was applied.
    """

    change_id: int
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    outcome: Outcome
    nonce: int | None = None
    error: str | None = None
    payload_hash: bytes | None = None
    unproven: bool = False
    mapping: str = ""

    @staticmethod
    def of(change: Any, outcome: Outcome, *, nonce: int | None = None, error: str | None = None) -> Ending:
        """`change`: any object with a change's columns, such as an operation or a candidate."""
        named = {name: getattr(change, name) for name in ("change_id", "entity_type", "entity_id", "event_type")}
        cls = PriorityClass(change.priority_class)
        return Ending(**named, priority_class=cls, outcome=outcome, nonce=nonce, error=error)

    @staticmethod
    def applied(change: Any) -> Ending:
        """`change` with the `nonce` that OldHost has applied, and the `state_hash` of what it has now."""
        ending = Ending.of(change, Outcome.APPLIED, nonce=change.nonce)
        return replace(ending, payload_hash=change.state_hash, mapping=change.mapping)

    @staticmethod
    def found_applied(change: Any) -> Ending:
        """OldHost says later that it has applied it. The next change of the key is always sent: which state the body
        makes is not kept with it.
        """
        return replace(Ending.unconfirmed(change), unproven=False)

    @staticmethod
    def unconfirmed(change: Any) -> Ending:
        """OldHost has used the nonce, but its answer was lost and may have been a rejection. So OldHost's state is
        unknown, and the next change of the key is always sent.
        """
        ending = Ending.of(change, Outcome.APPLIED, nonce=change.nonce)
        return replace(ending, payload_hash=UNKNOWN, unproven=True, mapping=change.mapping or "")

    @staticmethod
    def unsure(change: Any, error: str) -> Ending:
        """OldHost has used the nonce, and its answer says neither applied nor rejected: an operator decides. Until then
        OldHost's state is unknown.
        """
        ending = Ending.of(change, Outcome.DEAD, nonce=change.nonce, error=error)
        return replace(ending, payload_hash=UNKNOWN, unproven=True, mapping=change.mapping or "")


class HasFate(Exception):  # noqa: N818 - a name says what happened
    """The change has a fate already, and keeps it: nothing is changed."""


def record_fate(connection: Connection, host: str, ending: Ending, *, numbered: bool = False) -> bool:
    """:func:`add_fate`, run at once; False when the change has a fate already."""
    packet = Packet(connection)
    add_fate(packet, host, ending, numbered=numbered)
    try:
        packet.run()
    except HasFate:
        return False
    return True


def add_fate(packet: Packet, host: str, ending: Ending, *, numbered: bool = False) -> None:
    """Add `ending` and its consequences to `packet`, which then may raise HasFate.

    The caller holds the lock of the ledger row; nothing here waits for another lock. `numbered`: the caller has
    increased the ledger's `fate_sequence` in this transaction (:data:`RAISE_SEQUENCE`).
    """
    if not numbered:
        packet.add(RAISE_SEQUENCE, (host,))
    where = (ending.change_id, host)
    outcome, nonce, error = ending.outcome.value, ending.nonce, shortened(ending.error)
    kept = (outcome, nonce, None, error, ending.unproven, *where)
    packet.require(_RECORD_FATE, (*kept, outcome, nonce, error, ending.unproven, *where), _has_fate)
    key = (host, ending.entity_type, ending.entity_id, ending.event_type)
    if ending.priority_class is PriorityClass.LWW and ending.outcome in SUPERSEDING:
        supersede_older(packet, ending.change_id, key)
    if ending.outcome is Outcome.APPLIED or ending.unproven:
        # Later equal changes are no-ops, older ones are stale (trap 8).
        packet.add(_REMEMBER, (*key, ending.change_id, ending.payload_hash, ending.nonce, ending.mapping))
    elif ending.outcome is Outcome.NO_OP:
        packet.add(_CONFIRM, (ending.change_id, *key, ending.change_id))


def _has_fate() -> NoReturn:
    raise HasFate


def supersede_older(
    packet: Packet, change_id: int, key: tuple[str, str, str, str], *, unless_bound: bool = False
) -> None:
    """The older LWW changes of this key (host, entity type, entity id, event type) have their fate with this one.
    `unless_bound`: this one is not sent, so an older one may be at OldHost just now.
    """
    statement = _SUPERSEDE_UNBOUND if unless_bound else _SUPERSEDE_OLDER
    packet.add(statement, (*key, change_id, change_id, change_id))


def shortened(text: str | None) -> str | None:
    """Cut to what the text columns can store."""
    return None if text is None else storable(text, TEXT_LENGTH_MAX)


# ---------------------------------------------------------------------------------------------------------- used nonces

APPLIED = "applied"
UNCONFIRMED = "unconfirmed: OldHost expected a later nonce, and its answer was lost"
# The first word of an unsure letter's text: such letters have groups and alerts of their own.
UNSURE = "unsure: "
ADOPTED = "counted as applied by an operator's decision"


@dataclass(frozen=True, slots=True)
class UsedNonce:
    """How the ledger's row ends (`status`, `answer`), and its change."""

    status: str
    answer: str
    ending: Ending

    @property
    def fate(self) -> ChangeResult:
        """For the writer, without OldHost's words: they may quote what was sent (I9)."""
        ending = self.ending
        error = None if ending.outcome is Outcome.APPLIED else "OldHost gave an answer that the protocol does not have"
        return ChangeResult(ending.change_id, ending.outcome.value, ending.nonce, error, unproven=ending.unproven)


def used(
    row: Any,
    otherwise: str = UNCONFIRMED,
    *,
    shared: bool = False,
    repeated: bool = False,
    told: OutcomeTold | None = None,
) -> UsedNonce:
    """`row`: SENT, its nonce used (`statements.SENT_ROWS`). `otherwise`: why it counts as applied if no answer came.
    `shared`: another operation had the nonce before, and may have used it. `repeated`: each of its sends may have used
    it. `told`: what OldHost says of it later.
    """
    if told is not None and not shared:
        return _told(row, told)
    if not row.sends or row.said_send != row.sends:
        if shared:
            why = f"{UNSURE}its answer was lost, and another operation had nonce {row.nonce}, too"
            return UsedNonce("UNSURE", why, Ending.unsure(row, why))
        return UsedNonce("APPLIED", otherwise, Ending.unconfirmed(row))
    if row.said_rejects and not (repeated and row.sends > 1):
        ending = Ending.of(row, Outcome.DEAD, nonce=row.nonce, error=row.answer)
        return UsedNonce("FAILED", f"rejected: {row.answer}", ending)
    unsure = f"{UNSURE}{row.answer}"
    return UsedNonce("UNSURE", unsure, Ending.unsure(row, unsure))


def _told(row: Any, told: OutcomeTold) -> UsedNonce:
    if told.fate is ToldFate.APPLIED:
        return UsedNonce("APPLIED", APPLIED, Ending.found_applied(row))
    reason = told.reason or "OldHost said so when it was asked"
    return UsedNonce("FAILED", f"rejected: {reason}", Ending.of(row, Outcome.DEAD, nonce=row.nonce, error=reason))


# -------------------------------------------------------------------------------------------------------- setting apart

# An operation that OldHost refuses without using its nonce gives it up: others go first with that number.
#
# That the nonce is free is proven by then: the protocol says so of `busy`, and otherwise the settle time is over and
# two readings agree. One lost answer is followed by the same bytes, as always; a refusal in words, or a second lost
# answer, by this; and so is a first lost answer while an emergency of another entity waits, which must not wait for the
# second. The price: a copy that arrives later than the settle time takes a number that another operation has. So the
# archive keeps every body that a number had, and if such a number is used without an answer that says applied, that
# proves neither operation (I14): both are unsure.
#
# How long a change waits apart follows from the archive, so the pauses outlive the writer's run.

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
# Of an operation in the archive `a` of which a copy may still arrive. The archive keeps the status: SENT, so it may
# have been written and no end of it is known.
MAY_ARRIVE = "a.status = 'SENT' AND a.sends > 0 AND a.reason IN (%s, %s, %s, 'retried by an operator')"
MAY_ARRIVE_VALUES = (APART, DECIDED, _MAY_BE_DONE)
_OTHERS = (
    "SELECT a.change_id, o.entity_type, o.entity_id, o.event_type, o.priority_class, a.nonce, a.mapping, o.outcome, "
    "(SELECT r.nonce FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) WHERE r.host = a.host "
    "AND r.change_id = a.change_id LIMIT 1) AS now_bound FROM nonce_requests_archive a "
    "FORCE INDEX (ix_nonce_requests_archive_nonce) STRAIGHT_JOIN outbox_events o ON o.id = a.change_id "
    f"WHERE a.host = %s AND a.nonce = %s AND a.change_id <> %s AND {MAY_ARRIVE} ORDER BY a.id"
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
    by_entity: dict[tuple[str, str], Refusals] = {}
    for row in connection.exec_driver_sql(_RECENT, (host, APART, REMEMBERED_SECONDS)):
        refused = by_entity.setdefault((row.entity_type, row.entity_id), Refusals())
        refused.nonces.append(row.nonce)
        refused.change_ids[row.change_id] = None
        refused.ms_ago = min(refused.ms_ago, row.ms_ago)
    return by_entity


def _refusals_of(connection: Connection, host: str, change: Any) -> Refusals:
    return _refusals(connection, host).get((change.entity_type, change.entity_id), Refusals())


def forget_tries(connection: Connection, host: str, change: Any, why: str = DECIDED) -> None:
    """An operator has decided about a change, and `why` its tries are not counted: its entity begins anew."""
    refused = _refusals_of(connection, host, change)
    connection.exec_driver_sql(_FORGET_TRIES, (why, host, change.id, APART))
    for change_id in refused.change_ids:
        connection.exec_driver_sql(_FORGET_TRIES, (DECIDED, host, change_id, APART))


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
    refused = _refusals_of(connection, host, row)
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
    sql.archive(connection, host, sql.ONE, (nonce, change_id), why)
    sql.archive(connection, host, sql.SENT_BEYOND, (nonce,), _BEHIND)


def waits_apart(connection: Connection, host: str, change_id: int) -> bool:
    """Whether the change, which has no fate, waits apart and has no nonce. For an act: under the ledger row's lock."""
    return connection.exec_driver_sql(_WAITS_APART, (host, change_id, APART)).first() is not None


def rest_of_pause_ms(connection: Connection, host: str, change: Any) -> int | None:
    """How long the change still waits apart (0: until its next turn); None: it does not."""
    if not waits_apart(connection, host, change.id):
        return None
    return _refusals_of(connection, host, change).left_ms(change.id, change.priority_class)


def _another_emergency_waits(connection: Connection, host: str, row: Any) -> bool:
    return connection.exec_driver_sql(_URGENT, (host, row.entity_type, row.entity_id)).first() is not None


def others_of(connection: Connection, host: str, row: Any) -> list[Any]:
    """The other operations that had this nonce and may have been written."""
    values = (host, row.nonce, row.change_id, *MAY_ARRIVE_VALUES)
    return list(connection.exec_driver_sql(_OTHERS, values).all())


def end_used(
    connection: Connection,
    host: str,
    row: Any,
    others: list[Any],
    expected: int,
    *,
    otherwise: str = UNCONFIRMED,
    repeated: bool = False,
    told: OutcomeTold | None = None,
    numbered: bool = False,
) -> list[ChangeResult]:
    """Record how an operation in doubt ended whose nonce is used, and how the `others` that had it: their fates.
    `otherwise`, `repeated` and `told`: as for :func:`used`; `numbered`: as for :func:`record_fate`.
    """
    ended = used(row, otherwise, shared=bool(others), repeated=repeated, told=told)
    completed = connection.exec_driver_sql(sql.COMPLETE_FOUND, (ended.status, shortened(ended.answer), host, row.nonce))
    check(completed.rowcount == 1, f"nonce {row.nonce} was not SENT")
    record_fate(connection, host, ended.ending, numbered=numbered)
    return [ended.fate, *_end_others(connection, host, others, expected)]


def _end_others(connection: Connection, host: str, others: list[Any], expected: int) -> list[ChangeResult]:
    """Their nonce is used, and no answer says by which: those without a fate are unsure. One that has got another
    nonce loses that, or it could be applied twice; unless OldHost has used that one, too.
    """
    fates = []
    for other in others:
        if other.outcome is not None or not _can_be_unsure(connection, host, other, expected):
            continue
        if other.now_bound is not None:
            _give_up_nonce(connection, host, other.now_bound, other.change_id, _MAY_BE_DONE)
            connection.exec_driver_sql(sql.SET_NEXT_NONCE, (other.now_bound, host))
        ending = Ending.unsure(other, f"{UNSURE}OldHost has used nonce {other.nonce}, which two operations had")
        if record_fate(connection, host, ending):
            why = "its nonce was used, and another operation had it, too"
            fates.append(ChangeResult(other.change_id, Outcome.DEAD.value, other.nonce, why, unproven=True))
    return fates


def _can_be_unsure(connection: Connection, host: str, other: Any, expected: int) -> bool:
    """Whether the operation has no nonce, or one that it can give up."""
    if other.now_bound is None:
        return True
    in_doubt = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    return bool(other.now_bound >= expected and len(in_doubt) <= _IN_DOUBT_MAX)
