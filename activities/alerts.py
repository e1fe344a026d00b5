"""Telling people: an alert is a row first, and a message to the webhook, if there is one, after that.

The row is what counts and is there once per cause; the message may come twice and may come late. A webhook that is
away fails the activity, which Temporal repeats; the row stays undelivered until it went out.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection, Engine
from temporalio import activity

from oldhost_sync.store.alerts import RaisedAlert, close_alert, mark_delivered, raise_alert, undelivered
from oldhost_sync.store.transactions import run_in_transaction
from workflows import messages

WEBHOOK_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class AlertActivities:
    """`webhook_url` None: alerts are rows only."""

    engine: Engine
    webhook_url: str | None = None

    @activity.defn(no_thread_cancel_exception=True)
    def raise_alert(self, alert: messages.Alert) -> None:
        """Open or close an alert; tell the webhook what nobody was told yet."""
        run_in_transaction(self.engine, lambda connection: _keep(connection, alert))
        if self.webhook_url is not None and not alert.close:
            self._deliver(alert.host, self.webhook_url)

    def _deliver(self, host: str, url: str) -> None:
        waiting = run_in_transaction(self.engine, lambda connection: undelivered(connection, host))
        for one in waiting:
            post(url, _shown(one))
            run_in_transaction(self.engine, partial(mark_delivered, alert_ids=[one.alert_id]))


def post(url: str, content: dict[str, Any]) -> None:
    """Raises OSError when the webhook is away or says no."""
    request = urllib.request.Request(  # noqa: S310 - the setting allows http and https only
        url, json.dumps(content).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS_MAX):  # noqa: S310
        pass


def _keep(connection: Connection, alert: messages.Alert) -> None:
    if alert.close:
        close_alert(connection, alert.host, alert.dedupe_key)
        return
    raise_alert(
        connection,
        host=alert.host,
        kind=alert.kind,
        severity=alert.severity,
        message=alert.message,
        dedupe_key=alert.dedupe_key,
        change_id=alert.change_id,
    )


def _shown(alert: RaisedAlert) -> dict[str, Any]:
    return {
        "id": alert.alert_id,
        "host": alert.host,
        "kind": alert.kind,
        "severity": alert.severity,
        "message": alert.message,
        "change_id": alert.change_id,
        "created_at": alert.created_at.isoformat(),
    }
