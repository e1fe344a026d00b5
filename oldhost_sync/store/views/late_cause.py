"""Why emergencies were late, as far as the database shows: what stopped or slowed sending while they waited.

Causes that are over by now count too: when the last of the emergencies was sent, its cause often is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.rules.alert_kinds import KINDS

# An answer that takes this long counts as slow. An operation may be marked while the one before it is still on the
# wire, so the measured time may include two answers.
SLOW_ANSWER_MS = 3_000
OTHERS_FIRST = "no fault found; others were sent first: simultaneous emergencies, or older changes of their units"
NOTHING_SENT = "no fault found; nothing else was sent meanwhile"
# How many of the newest of each are read.
_OPERATIONS, _SESSIONS, _ALERTS_LOOKED_AT = 40, 5, 50

_BEGAN = "UTC_TIMESTAMP(6) - INTERVAL :us MICROSECOND"
_STOPS = text(f"SELECT halted, banned_until > {_BEGAN} AS banned FROM nonce_ledger WHERE host = :host")
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
    for cause in _stops(connection, values):
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


def _stops(connection: Connection, values: dict[str, object]) -> Iterator[str]:
    stops = connection.execute(_STOPS, values).one_or_none()
    if stops is not None and stops.halted:
        yield f"a halt: {stops.halted}"
    if stops is not None and stops.banned:
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
