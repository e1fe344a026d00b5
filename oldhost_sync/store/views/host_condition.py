"""The state of one host, for people: what stops it, what is wrong, what is in flight. It reads few rows at any load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from oldhost_sync.store.alerts import RaisedAlert, list_alerts
from oldhost_sync.store.audit import AuditedAct, current_pause
from oldhost_sync.store.ledger.halt_decision import HaltDecision, read_decision
from oldhost_sync.store.tables import nonce_requests, outbox_events
from oldhost_sync.store.views.ban import Ban, read_ban
from oldhost_sync.store.views.overview import count_open_alerts, oldest_waiting_at, read_ledger
from oldhost_sync.store.views.processes import Process, read_workers
from oldhost_sync.store.views.session_list import SessionView, read_newest_session

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
