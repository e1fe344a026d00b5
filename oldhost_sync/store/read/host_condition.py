"""The state of one host, for people: what stops it, what is wrong, what is in flight. It reads few rows at any load,
takes no lock and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import ceil
from statistics import median
from typing import Any

from sqlalchemy import bindparam, exists, func, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.alerts import RaisedAlert, list_alerts
from oldhost_sync.store.audit import AuditedAct, current_pause
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY
from oldhost_sync.store.outbox.books import read_books
from oldhost_sync.store.read import late_emergencies
from oldhost_sync.store.read.halt import HaltDecision, read_decision
from oldhost_sync.store.read.sessions import Process, SessionView, read_newest_session, read_workers
from oldhost_sync.store.tables import (
    IS_FATE_OF_CHANGE,
    alerts,
    nonce_ledger,
    nonce_requests,
    outbox_events,
)

# -------------------------------------------------------------------------------------------------------------- the ban

# OldHost bans for a replay, and does not say for which request. A send of ours can be a replay only if OldHost may have
# had its nonce before and did not answer: such an operation is still in doubt, as nothing is sent during a ban.

_BAN = text(
    "SELECT l.banned_at, l.banned_until, l.halted_expected_nonce, r.nonce, r.answer FROM nonce_ledger l "
    "LEFT JOIN nonce_requests r FORCE INDEX (ix_nonce_requests_status) ON r.host = l.host AND r.status = 'SENT' "
    # An operation in doubt has an answer if it was called a replay, or is sent again by an operator's decision.
    "AND (r.sends > 1 OR (r.sends = 1 AND r.answer IS NOT NULL) OR r.answer = :replay) "
    "WHERE l.host = :host AND NOT l.ban_is_over AND UTC_TIMESTAMP(6) BETWEEN l.banned_at AND l.banned_until "
    "ORDER BY r.nonce LIMIT 1"
).columns(banned_at=UtcDateTime(), banned_until=UtcDateTime())
_BY_ANOTHER = (
    "OldHost does not say why. By the ledger no send of ours was a replay: another program with our account sent one, "
    "or a proxy repeated one of ours."
)


@dataclass(frozen=True, slots=True)
class Ban:
    """`cause`: sentences for people."""

    began_at: datetime
    until: datetime
    cause: str


def read_ban(connection: Connection, host: str) -> Ban | None:
    """None if the ledger has no current ban."""
    row = connection.execute(_BAN, {"host": host, "replay": CALLED_A_REPLAY}).one_or_none()
    if row is None:
        return None
    return Ban(row.banned_at, row.banned_until, _cause(row.nonce, row.answer, row.halted_expected_nonce))


def _cause(nonce: int | None, answer: str | None, expected: int | None) -> str:
    """`expected`: the nonce that OldHost expected at the halt, if known."""
    if nonce is None:
        return _BY_ANOTHER
    if answer != CALLED_A_REPLAY:
        return f"We sent nonce {nonce} more than once, as no answer arrived: OldHost may have taken that for a replay."
    said = f"OldHost called our first send of nonce {nonce} a replay: another program with our account had used it"
    only_that = expected is not None and expected > nonce + 1
    return f"{said}." if only_that else f"{said}, or a proxy delivered our operation twice."


# ----------------------------------------------------------------------------------------------- the usual service time

# The median of a sample, spread over the last twenty thousand operations. At 400 ms each these are two hours of
# sending, so that a slowdown of OldHost shows against it.

OPERATIONS, LOOKED_AT = 20_000, 100
# The smallest sample that counts.
LOOKED_AT_MIN = 10

_NONCES = text("SELECT MIN(nonce) AS first, MAX(nonce) AS last FROM nonce_requests WHERE host = :host")
# An operation is marked while the one before it is on the wire; its own time begins at that one's answer.
_TIMES = text(
    "SELECT TIMESTAMPDIFF(MICROSECOND, GREATEST(o.sent_at, COALESCE(b.completed_at, o.sent_at)), o.completed_at) "
    "FROM nonce_requests o FORCE INDEX (PRIMARY) LEFT JOIN nonce_requests b ON b.host = o.host "
    "AND b.nonce = o.nonce - 1 WHERE o.host = :host AND o.nonce IN :nonces AND o.status = 'APPLIED' AND o.sends = 1"
).bindparams(bindparam("nonces", expanding=True))


def usual_service_ms(connection: Connection, host: str) -> float | None:
    """None while too few operations were answered."""
    known = connection.execute(_NONCES, {"host": host}).one()
    if known.last is None:
        return None
    first = max(known.first, known.last - OPERATIONS + 1)
    step = ceil((known.last - first + 1) / LOOKED_AT)
    nonces = list(range(known.last, first - 1, -step))
    times = connection.execute(_TIMES, {"host": host, "nonces": nonces}).scalars().all()
    return median(times) / 1000 if len(times) >= LOOKED_AT_MIN else None


# --------------------------------------------------------------------------------------------------------------- status


def read_status(connection: Connection, host: str) -> dict[str, Any]:
    """The books, the ledger's row, and the figures that people ask for first."""
    return {
        "books": asdict(read_books(connection, host)),
        "ledger": read_ledger(connection, host),
        "oldest_waiting_at": oldest_waiting_at(connection, host),
        "open_alerts": count_open_alerts(connection, host),
        "emergency_breaches": asdict(late_emergencies.breaches(connection, host)),
        "usual_service_ms": usual_service_ms(connection, host),
    }


def read_ledger(connection: Connection, host: str) -> dict[str, Any] | None:
    """The host's row of the ledger; None before the first session."""
    row = connection.execute(select(nonce_ledger).where(nonce_ledger.c.host == host)).one_or_none()
    return None if row is None else {name: value for name, value in row._mapping.items() if name != "host"}  # noqa: SLF001


def oldest_waiting_at(connection: Connection, host: str) -> datetime | None:
    """When the oldest change without a fate was accepted (the 4 h promise is measured from it)."""
    return connection.execute(
        select(outbox_events.c.created_at)
        .where(outbox_events.c.host == host, outbox_events.c.processed_at.is_(None), ~exists().where(IS_FATE_OF_CHANGE))
        .order_by(outbox_events.c.id)
        .limit(1)
    ).scalar()


def count_open_alerts(connection: Connection, host: str) -> int:
    query = select(func.count()).where(alerts.c.host == host, alerts.c.closed_at.is_(None))
    return connection.execute(query).scalar_one()


# ------------------------------------------------------------------------------------------------------------ condition

# How many alerts are read; their number is given separately.
ALERTS_MAX = 50
# Those that OldHost gets next. Four sends of up to 100 operations each may be in flight, at a quick host.
IN_FLIGHT_SHOWN = 40

_BOUND = (
    select(
        *(nonce_requests.c[name] for name in ("nonce", "status", "change_id", "sent_at")),
        nonce_requests.c.created_at.label("reserved_at"),
        *(outbox_events.c[name] for name in ("priority_class", "entity_type", "entity_id", "event_type")),
    )
    .outerjoin(outbox_events, outbox_events.c.id == nonce_requests.c.change_id)
    .where(nonce_requests.c.status.in_(["RESERVED", "SENT"]))
    .order_by(nonce_requests.c.nonce)
    .limit(IN_FLIGHT_SHOWN + 1)
)


@dataclass(frozen=True, slots=True)
class HostCondition:
    """`ledger`: its row, None before the first session. `pause`: the one in force. `alerts`: open ones, the worst
    first; `open_alerts`: how many there are. `bound`: operations that hold a nonce and have not ended yet, by nonce;
    `more_bound`: there are more. `session`: the newest that a worker has recorded. `ban`: the current one. `decision`:
    about a halt, not carried out yet. `workers`: those at work first, then those seen last.
    """

    ledger: dict[str, Any] | None
    pause: AuditedAct | None
    alerts: list[RaisedAlert]
    open_alerts: int
    bound: list[dict[str, Any]]
    oldest_waiting_at: datetime | None
    session: SessionView | None = None
    ban: Ban | None = None
    decision: HaltDecision | None = None
    workers: Sequence[Process] = ()
    more_bound: bool = False


def read_condition(connection: Connection, host: str) -> HostCondition:
    found = list_alerts(connection, host, limit=ALERTS_MAX)
    rank = {"critical": 0, "warning": 1}
    bound = [dict(row._mapping) for row in connection.execute(_BOUND.where(nonce_requests.c.host == host))]  # noqa: SLF001
    return HostCondition(
        ledger=read_ledger(connection, host),
        pause=current_pause(connection, host),
        alerts=sorted(found, key=lambda alert: (rank.get(alert.severity, 2), -alert.alert_id)),
        open_alerts=len(found) if len(found) < ALERTS_MAX else count_open_alerts(connection, host),
        bound=bound[:IN_FLIGHT_SHOWN],
        more_bound=len(bound) > IN_FLIGHT_SHOWN,
        oldest_waiting_at=oldest_waiting_at(connection, host),
        session=read_newest_session(connection, host),
        ban=read_ban(connection, host),
        decision=read_decision(connection, host),
        workers=read_workers(connection, host),
    )
