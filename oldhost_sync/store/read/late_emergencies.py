"""Late emergencies, why they were late, and how long changes took; from the database alone, independent of the writer.

Fates are read once, in the order of their sequence, by a cursor that moves in the same transaction as the counts: a
restart counts nothing twice and loses nothing. The work of each poll is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.promise import APPLIED_BOUNDS_MS, Incident, Late
from oldhost_sync.store.columns import storable
from oldhost_sync.store.outbox.books import move_cursor
from oldhost_sync.store.outbox.pending_fates import IS_PENDING

# The histogram's row for waits above the largest bound.
LONGER_MS = 2**62
# Emergencies read in one poll; above it the count is "at least".
WAITING_MAX = 5_000
# Transactions whose fates are read in one poll; each is one operation, with what it superseded.
SEQUENCES_MAX = 500
# Older fates that the relay numbers late do not raise alerts.
NEWS_DAYS = 1

_HOST_STATES = text(
    "SELECT l.host, COALESCE(n.fate_sequence, 0) AS fates, UTC_TIMESTAMP(6) AS now, EXISTS ("
    "SELECT 1 FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = l.host "
    "AND o.processed_at IS NULL AND o.priority_class = 'EMERGENCY') AS emergencies "
    "FROM relay_lease l LEFT JOIN nonce_ledger n ON n.host = l.host WHERE l.owner = :owner"
)
_WAITING = text(
    "SELECT o.id, o.relayed_at IS NULL AS unrelayed, "
    "TIMESTAMPDIFF(MICROSECOND, o.created_at, UTC_TIMESTAMP(6)) DIV 1000 AS ms "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = :host AND o.processed_at IS NULL "
    "AND o.priority_class = 'EMERGENCY' "
    f"AND NOT {IS_PENDING} LIMIT :limit"
)
_FATES = text(
    "SELECT o.id, o.priority_class, o.outcome, "
    "TIMESTAMPDIFF(MICROSECOND, o.created_at, o.processed_at) DIV 1000 AS ms, "
    f"o.processed_at > UTC_TIMESTAMP(6) - INTERVAL {NEWS_DAYS} DAY AS is_news "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_feed) WHERE o.host = :host "
    "AND o.fate_sequence > :after AND o.fate_sequence <= :upto"
)
_CURSOR = text("SELECT sequence FROM counted_fates WHERE host = :host FOR UPDATE")
# Numbers begin with 1: at 0 none has ended, and the books are right as they are.
_BEGIN = text(
    "INSERT INTO counted_fates (host, sequence, booked_sequence, resolved_epoch) "
    "VALUES (:host, :sequence, IF(:sequence = 0, 0, NULL), 0)"
)
_COUNT = text(
    "INSERT INTO applied_waits (host, priority_class, upto_ms, changes, total_ms) "
    "VALUES (:host, :cls, :upto_ms, :changes, :total_ms) "
    "ON DUPLICATE KEY UPDATE changes = changes + VALUES(changes), total_ms = total_ms + VALUES(total_ms)"
)
_WAITS = text("SELECT priority_class, upto_ms, changes, total_ms FROM applied_waits WHERE host = :host")
_INCIDENT = text("SELECT * FROM late_emergencies WHERE host = :host AND is_open = 1")
_FIGURES = ("warned_ended", "breached_ended", "warned_waiting", "breached_waiting", "worst_ms", "cause")
_OPEN = text(
    f"INSERT INTO late_emergencies (host, {', '.join(_FIGURES)}) "
    f"VALUES (:host, {', '.join(f':{name}' for name in _FIGURES)})"
)
_UPDATE = text(
    f"UPDATE late_emergencies SET {', '.join(f'{name} = :{name}' for name in _FIGURES)} "
    "WHERE host = :host AND is_open = 1"
)
_CLOSE = text(
    "UPDATE late_emergencies SET is_open = NULL, ended_at = UTC_TIMESTAMP(6) WHERE host = :host AND is_open = 1"
)
_BREACHES = text(
    "SELECT COUNT(*) AS incidents, COALESCE(SUM(breached_ended + breached_waiting), 0) AS breaches, "
    "COALESCE(MAX(worst_ms), 0) AS worst_ms FROM late_emergencies FORCE INDEX (ix_late_emergencies_started) "
    "WHERE host = :host AND started_at > UTC_TIMESTAMP(6) - INTERVAL 30 DAY"
)


@dataclass(frozen=True, slots=True)
class HostState:
    """Whether emergencies wait, and the number of the newest fate."""

    emergencies: bool = False
    fates: int = 0


@dataclass(frozen=True, slots=True)
class WaitingEmergency:
    """An emergency without a fate, and its age by the database's clock."""

    change_id: int
    unrelayed: bool
    age_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A change with a fate, and how long it took by the database's clock."""

    change_id: int
    priority_class: PriorityClass
    outcome: str
    took_ms: int


@dataclass(frozen=True, slots=True)
class Breaches:
    """In the last 30 days: how many incidents, how many emergencies that broke the promise, the longest wait."""

    incidents: int
    breaches: int
    worst_ms: int


def host_states(connection: Connection, owner: str) -> tuple[dict[str, HostState], float | None]:
    """The state of each host whose lease `owner` holds; and the database's clock in seconds, if it holds any."""
    rows = connection.execute(_HOST_STATES, {"owner": owner}).all()
    now_s = rows[0].now.replace(tzinfo=UTC).timestamp() if rows else None
    return {row.host: HostState(bool(row.emergencies), int(row.fates)) for row in rows}, now_s


def waiting_emergencies(connection: Connection, host: str) -> list[WaitingEmergency]:
    """At most WAITING_MAX emergencies without a fate; those with a pending fate are left out."""
    rows = connection.execute(_WAITING, {"host": host, "limit": WAITING_MAX})
    return [WaitingEmergency(row.id, bool(row.unrelayed), int(row.ms)) for row in rows]


def take_fates(connection: Connection, host: str, newest: int) -> tuple[list[Ended], bool]:
    """The fates that were not counted yet, and whether there are more; they are counted when this commits.

    The first call of a host starts the count: fates before it are not returned.
    """
    after = connection.execute(_CURSOR, {"host": host}).scalar()
    if after is None:
        connection.execute(_BEGIN, {"host": host, "sequence": newest})
        return [], False
    upto = min(newest, after + SEQUENCES_MAX)
    if upto <= after:
        return [], False
    rows = connection.execute(_FATES, {"host": host, "after": after, "upto": upto}).all()
    move_cursor(connection, host, upto, [row.outcome for row in rows])
    ended = [Ended(row.id, PriorityClass(row.priority_class), row.outcome, int(row.ms)) for row in rows if row.is_news]
    return ended, upto < newest


def count_applied(connection: Connection, host: str, applied: Sequence[Ended]) -> None:
    """Add the applied changes to the histograms of their classes."""
    changes: Counter[tuple[PriorityClass, int]] = Counter()
    total_ms: Counter[tuple[PriorityClass, int]] = Counter()
    for change in applied:
        at = bisect_left(APPLIED_BOUNDS_MS, change.took_ms)
        key = change.priority_class, APPLIED_BOUNDS_MS[at] if at < len(APPLIED_BOUNDS_MS) else LONGER_MS
        changes[key] += 1
        total_ms[key] += max(0, change.took_ms)
    for (cls, upto_ms), number in sorted(changes.items()):
        values = {"host": host, "cls": cls.value, "upto_ms": upto_ms, "changes": number}
        connection.execute(_COUNT, values | {"total_ms": total_ms[cls, upto_ms]})


def applied_waits(connection: Connection, host: str) -> dict[PriorityClass, tuple[dict[int, int], int]]:
    """For each class: the changes by upper bound (not cumulative), and the sum of their times in ms."""
    waits: dict[PriorityClass, tuple[dict[int, int], int]] = {}
    for row in connection.execute(_WAITS, {"host": host}):
        counts, total = waits.get(PriorityClass(row.priority_class), ({}, 0))
        waits[PriorityClass(row.priority_class)] = {**counts, row.upto_ms: row.changes}, total + row.total_ms
    return waits


def open_incident(connection: Connection, host: str) -> Incident | None:
    row = connection.execute(_INCIDENT, {"host": host}).one_or_none()
    if row is None:
        return None
    return Incident(
        Late(row.warned_ended, row.breached_ended, row.worst_ms),
        Late(row.warned_waiting, row.breached_waiting),
        row.cause,
    )


def keep_incident(connection: Connection, host: str, incident: Incident, *, is_new: bool) -> None:
    values = {
        "host": host,
        "warned_ended": incident.ended.warned,
        "breached_ended": incident.ended.breached,
        "warned_waiting": incident.waiting.warned,
        "breached_waiting": incident.waiting.breached,
        "worst_ms": incident.total.worst_ms,
        "cause": storable(incident.cause, TEXT_LENGTH_MAX),
    }
    connection.execute(_OPEN if is_new else _UPDATE, values)


def end_incident(connection: Connection, host: str) -> None:
    """The incident stays as a record."""
    connection.execute(_CLOSE, {"host": host})


def breaches(connection: Connection, host: str) -> Breaches:
    row = connection.execute(_BREACHES, {"host": host}).one()
    return Breaches(int(row.incidents), int(row.breaches), int(row.worst_ms))


# ------------------------------------------------------------------------------------------------------------ the cause

# What stopped or slowed sending while they waited, as far as the database shows. Causes that are over by now count too:
# when the last of the emergencies was sent, its cause often is over.

# An answer that takes this long counts as slow. An operation may be marked while the one before it is still on the
# wire, so the measured time may include two answers.
SLOW_ANSWER_MS = 3_000
OTHERS_FIRST = "no fault found; others were sent first: simultaneous emergencies, or older changes of their units"
NOTHING_SENT = "no fault found; nothing else was sent meanwhile"
# How many of the newest of each are read.
_OPERATIONS, _SESSIONS, _ALERTS_LOOKED_AT = 40, 5, 50

_BEGAN = "UTC_TIMESTAMP(6) - INTERVAL :us MICROSECOND"
_BLOCKERS = text(f"SELECT halted, banned_until > {_BEGAN} AS banned FROM nonce_ledger WHERE host = :host")
_PAUSE = text(
    "SELECT operator, reason FROM operator_audit FORCE INDEX (ix_operator_audit_action) "
    "WHERE host = :host AND action = 'pause' AND NOT EXISTS (SELECT 1 FROM operator_audit r "
    "FORCE INDEX (ix_operator_audit_action) WHERE r.host = :host AND r.action = 'resume' AND r.id > operator_audit.id "
    f"AND r.created_at <= {_BEGAN}) ORDER BY id DESC LIMIT 1"
)
# Blocked or late emergencies are an effect; and what only tells people of an event delays nothing, as a token that
# sends more than its quota. Writes that were refused may have been signalled emergencies.
_NO_CAUSES = {"emergency-late", "emergency-blocked", "dead-letters"} | {
    kind for kind, about in KINDS.items() if about.informational and kind != "writes-refused"
}
_ALERTS = text(
    "SELECT id, kind, closed_at IS NOT NULL AS is_closed FROM ("
    + " UNION ".join(
        "(SELECT id, kind, severity, closed_at FROM alerts FORCE INDEX (ix_alerts_closed) WHERE host = :host "
        f"AND {still} ORDER BY closed_at DESC, id DESC LIMIT {_ALERTS_LOOKED_AT})"
        for still in ("closed_at IS NULL", f"closed_at > {_BEGAN}")
    )
    + ") newest WHERE severity = 'critical' AND kind NOT IN ("
    + ", ".join(f"'{kind}'" for kind in sorted(_NO_CAUSES))
    + ") "
    "ORDER BY id DESC LIMIT 3"
)
_SESSION = text(
    "SELECT ended_because FROM (SELECT epoch, ended_at, ended_because FROM host_sessions WHERE host = :host "
    f"ORDER BY epoch DESC LIMIT {_SESSIONS}) newest WHERE ended_at > {_BEGAN} ORDER BY epoch DESC LIMIT 1"
)
_SLOWEST = text(
    "SELECT MAX(TIMESTAMPDIFF(MICROSECOND, sent_at, COALESCE(completed_at, UTC_TIMESTAMP(6))) DIV 1000) FROM ("
    "SELECT sent_at, completed_at FROM nonce_requests FORCE INDEX (PRIMARY) WHERE host = :host "
    f"ORDER BY nonce DESC LIMIT {_OPERATIONS}) newest WHERE sent_at IS NOT NULL "
    f"AND (completed_at IS NULL OR completed_at > {_BEGAN})"
)
_ANSWERED = text(
    "SELECT change_id FROM (SELECT change_id, completed_at FROM nonce_requests FORCE INDEX (PRIMARY) "
    f"WHERE host = :host ORDER BY nonce DESC LIMIT {_OPERATIONS}) newest WHERE completed_at > {_BEGAN}"
)


def late_cause(connection: Connection, host: str, *, waited_ms: int, unrelayed: int, waiting: int) -> str:
    """The likeliest cause, in words that fit after "Cause:"; empty if no fault is found. `waited_ms`: how far back to
    look.

    `unrelayed` of the `waiting` emergencies were not handed to the writer yet.
    """
    values = {"host": host, "us": waited_ms * 1000}
    for cause in _blockers(connection, values):
        return cause
    if unrelayed:
        return f"{unrelayed} of {waiting} could not be handed to the writer yet"
    slowest_ms = connection.execute(_SLOWEST, values).scalar() or 0
    if slowest_ms >= SLOW_ANSWER_MS:
        return f"it took up to {slowest_ms / 1000:.0f} s until an answer was recorded; OldHost or MariaDB was slow"
    return ""


def no_fault(connection: Connection, host: str, *, waited_ms: int, own: Collection[int]) -> str:
    """What to say when there is no cause. `own`: the ids of the late emergencies that were sent by now."""
    answered = connection.execute(_ANSWERED, {"host": host, "us": waited_ms * 1000}).scalars()
    return OTHERS_FIRST if set(answered) - set(own) else NOTHING_SENT


def _blockers(connection: Connection, values: dict[str, object]) -> Iterator[str]:
    blockers = connection.execute(_BLOCKERS, values).one_or_none()
    if blockers is not None and blockers.halted:
        yield f"a halt: {blockers.halted}"
    if blockers is not None and blockers.banned:
        yield "a ban by OldHost"
    pause = connection.execute(_PAUSE, values).one_or_none()
    if pause is not None:
        yield f"a pause by {pause.operator}: {pause.reason}"
    alerts = sorted(connection.execute(_ALERTS, values), key=lambda alert: bool(alert.is_closed))
    named = dict.fromkeys(alert.kind for alert in alerts)
    still_open = {alert.kind for alert in alerts if not alert.is_closed}
    if named:
        kinds = ", ".join(kind if kind in still_open else f"{kind} (closed by now)" for kind in named)
        yield f"see the alert{'s' * (len(named) > 1)} {kinds}"
    because = connection.execute(_SESSION, values).scalar()
    if because:
        yield f"the session with OldHost ended ({because}), and another was needed"
