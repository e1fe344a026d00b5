"""Alerts: list them, acknowledge them, close informational ones. Who did it and why is recorded in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Path, Query, Request
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, WATCHERS, adder, caller_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import (
    FLAG,
    AnswerBody,
    Cursor,
    Limit,
    ReasonedRequest,
    RowId,
    json_body,
    read_body,
    read_number_cursor,
)
from oldhost_sync.policy.limits import EVENT_TYPE_LENGTH_MAX
from oldhost_sync.policy.rules.alert_kinds import may_close, runbook
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.alerts import (
    AlertDecided,
    RaisedAlert,
    State,
    acknowledge_alert,
    close_alert_by_hand,
    list_alerts,
)
from oldhost_sync.store.record import described

# What people do with alerts.
ALERT_ACTS: dict[str, Callable[[Connection, str, int, Actor, str], AlertDecided]] = {
    "acknowledge": acknowledge_alert,
    "close": close_alert_by_hand,
}
AlertId = Annotated[RowId, Path(description="The alert's id")]


@dataclass(frozen=True, slots=True)
class Alert(RaisedAlert):
    """One alert for one cause. `closed_by` is null when the product closed the alert because its cause was gone."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        **RaisedAlert.EXAMPLE,
        "may_close": False,
        "runbook": "docs/operations.md#alert-dead-letters",
    }

    may_close: bool = field(metadata=described("Whether a person may close it: it is open and informational."))
    runbook: str


class AlertPage(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"alerts": [Alert.EXAMPLE], "next_cursor": None}

    alerts: list[Alert]
    next_cursor: str | None


class AlertRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "alerts")
        add("GET", "/api/alerts", self.list, AlertPage, "Alerts, newest first", WATCHERS, (405, 422))
        for action, handler, reason in (
            ("acknowledge", self.acknowledge, "I am looking into it"),
            ("close", self.close, "The application's team knows; the error is corrected"),
        ):
            path, summary = f"/api/alerts/{{alert_id}}/{action}", f"{action.capitalize()} an alert"
            body = json_body(ReasonedRequest, example={"reason": reason})
            add("POST", path, handler, Alert, summary, OPERATORS, (404, 405, 409, 413, 415, 422), **body)

    async def list(
        self,
        open: Annotated[bool, FLAG, Query(description="Only open ones; see `state`")] = True,  # noqa: A002 - the query's word
        state: Annotated[State | None, Query(description="Use instead of `open`: open, closed or all")] = None,
        kind: Annotated[
            str | None, Query(min_length=1, max_length=EVENT_TYPE_LENGTH_MAX, description="Only alerts of this kind")
        ] = None,
        cursor: Cursor = None,
        limit: Limit = http_limits.PAGE_DEFAULT,
    ) -> AlertPage:
        before_id = read_number_cursor(cursor)
        host = self._dependencies.host
        alerts = await self._dependencies.database.run(
            lambda connection: list_alerts(
                connection,
                host,
                state=state or ("open" if open else "all"),
                kind=kind,
                limit=limit + 1,
                before_id=before_id,
            )
        )
        page = [_shown(alert) for alert in alerts[:limit]]
        return AlertPage(alerts=page, next_cursor=str(page[-1].alert_id) if len(alerts) > limit else None)

    async def acknowledge(self, request: Request, alert_id: AlertId) -> Alert:
        """Records that you are looking after it. The alert stays open, and it is reported again if it gets worse."""
        return await self._act(request, "acknowledge", alert_id)

    async def close(self, request: Request, alert_id: AlertId) -> Alert:
        """Possible only if the product can't detect the end of the cause (`may_close`); it closes all other alerts
        itself.
        """
        return await self._act(request, "close", alert_id)

    async def _act(self, request: Request, action: str, alert_id: int) -> Alert:
        body = await read_body(request, ReasonedRequest)
        return _shown(
            await act_on_alert(self._dependencies, action, alert_id, caller_of(request).operator, body.reason)
        )


def _shown(alert: RaisedAlert) -> Alert:
    may = alert.closed_at is None and may_close(alert.kind)
    return Alert(**asdict(alert), may_close=may, runbook=runbook(alert.kind))


async def act_on_alert(
    dependencies: Dependencies, action: str, alert_id: int, operator: Actor, reason: str
) -> RaisedAlert:
    """Returns the alert after the action, a key of ALERT_ACTS. Raises a Problem: 404 unknown, 409 refused."""
    act, host = ALERT_ACTS[action], dependencies.host
    done = await dependencies.database.run(lambda connection: act(connection, host, alert_id, operator, reason))
    if done.alert is None:
        step = "GET /api/alerts lists the alerts."
        raise Problem(404, "unknown-alert", "There is no such alert", f"No alert has the id {alert_id}.", step)
    if done.refused:
        title = "This is not possible for this alert now"
        raise Problem(409, "alert-refused", title, f"Not done: {done.refused}.", f"See {runbook(done.alert.kind)}.")
    return done.alert
