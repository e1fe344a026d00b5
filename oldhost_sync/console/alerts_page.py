"""Alerts: open ones by kind and cause, with the next step; closed ones, and why they ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import OPERATORS, WATCHERS, caller_of
from oldhost_sync.api.requests import ReasonedRequest, RowId, read_number_cursor
from oldhost_sync.api.routes.alerts import act_on_alert
from oldhost_sync.console.forms import read_act
from oldhost_sync.console.next_steps import next_steps
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.limits import EVENT_TYPE_LENGTH_MAX
from oldhost_sync.policy.rules.alert_kinds import KINDS, SEVERITIES, AlertKind, may_close
from oldhost_sync.store.alerts import RaisedAlert, State, list_alerts
from oldhost_sync.store.read.halt import read_decision

ALERTS = f"{PREFIX}/alerts"
ALERTS_SHOWN = 100
AlertId = Annotated[RowId, Path()]
KindName = Annotated[str, Query(max_length=EVENT_TYPE_LENGTH_MAX)]
Group = tuple[str, AlertKind | None, list[RaisedAlert]]


class AlertsPage(Page):
    title = "Alerts"
    path = ALERTS

    def mount(self, add: Adder) -> None:
        add("GET", ALERTS, self.show, WATCHERS)
        for action, handler in (("acknowledge", self.acknowledge), ("close", self.close)):
            add("POST", f"{ALERTS}/{{alert_id}}/{action}", handler, OPERATORS)

    async def show(
        self,
        request: Request,
        state: State = "open",
        kind: KindName = "",
        cursor: Annotated[str, Query(max_length=20)] = "",
    ) -> Response:
        before_id, host = read_number_cursor(cursor or None), self.console.dependencies.host
        found, decision = await self.console.dependencies.database.run(
            lambda connection: (
                list_alerts(
                    connection, host, state=state, kind=kind or None, limit=ALERTS_SHOWN + 1, before_id=before_id
                ),
                read_decision(connection, host),
            )
        )
        shown = found[:ALERTS_SHOWN]
        given = {"state": state, "kind": kind}
        more = urlencode(given | {"cursor": shown[-1].alert_id}) if len(found) > ALERTS_SHOWN else None
        return self.page(
            request,
            "alerts.html",
            groups=grouped([alert for alert in shown if alert.closed_at is None]),
            closed=[alert for alert in shown if alert.closed_at is not None],
            given=given,
            kinds=list(KINDS),
            next_steps=next_steps(decision, self.console.dependencies.policy.promises),
            older=f"{ALERTS}?{more}" if more else None,
            may_close=may_close,
            webhook=self.console.webhook,
        )

    async def acknowledge(self, request: Request, alert_id: AlertId) -> Response:
        return await self._act(request, "acknowledge", alert_id)

    async def close(self, request: Request, alert_id: AlertId) -> Response:
        return await self._act(request, "close", alert_id)

    async def _act(self, request: Request, action: str, alert_id: int) -> Response:
        act = await read_act(request, ReasonedRequest)
        operator = caller_of(request).operator
        alert = await act_on_alert(self.console.dependencies, action, alert_id, operator, act.reason)
        done = f"{operator.name} is handling it" if action == "acknowledge" else "it is closed"
        return self.console.layout.redirect(ALERTS, f"Alert {alert_id} ({alert.kind}): {done}.")


def grouped(alerts: Sequence[RaisedAlert]) -> list[Group]:
    """By kind: the worst severity first, then the kind with the newest alert; within a kind the newest first."""
    by_kind = {
        kind: list(of_kind)
        for kind, of_kind in groupby(sorted(alerts, key=lambda alert: alert.kind), lambda alert: alert.kind)
    }

    def urgency(of_kind: list[RaisedAlert]) -> tuple[int, int]:
        return max(_rank(alert.severity) for alert in of_kind), of_kind[0].alert_id

    ordered = sorted(by_kind.items(), key=lambda item: urgency(item[1]), reverse=True)
    return [(kind, KINDS.get(kind), of_kind) for kind, of_kind in ordered]


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1
