"""What people do with alerts (acknowledge, close), for the API's routes and the console."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.engine import Connection

from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem
from oldhost_sync.policy.actor import Actor
from oldhost_sync.policy.alert_kinds import runbook
from oldhost_sync.store.alert_decisions import AlertDecided, acknowledge_alert, close_alert_by_hand
from oldhost_sync.store.alerts import RaisedAlert

ALERT_ACTS: dict[str, Callable[[Connection, str, int, Actor, str], AlertDecided]] = {
    "acknowledge": acknowledge_alert,
    "close": close_alert_by_hand,
}


async def act_on_alert(
    dependencies: Dependencies, action: str, alert_id: int, operator: Actor, reason: str
) -> RaisedAlert:
    """Returns the alert after the action, a key of ALERT_ACTS. Raises a Problem: 404 unknown, 409 refused."""
    act, host = ALERT_ACTS[action], dependencies.host
    done = await dependencies.database.run(lambda connection: act(connection, host, alert_id, operator, reason))
    if done.alert is None:
        found = "GET /api/alerts lists the alerts."
        raise Problem(404, "unknown-alert", "There is no such alert", f"No alert has the id {alert_id}.", found)
    if done.refused:
        title = "This is not possible for this alert now"
        raise Problem(409, "alert-refused", title, f"Not done: {done.refused}.", f"See {runbook(done.alert.kind)}.")
    return done.alert
