"""Alerts at the terminal: list and acknowledge them, close the informational ones."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from oldhost_sync.cli.arguments import Limit, Operator, Reason, operator_of, reason_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.environment import in_database, settings
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.policy.rules.alert_kinds import KINDS, runbook
from oldhost_sync.store.alerts import AlertDecided, RaisedAlert, acknowledge_alert, close_alert_by_hand, list_alerts
from oldhost_sync.user_errors import CliError

alerts = typer.Typer(help="Alerts, newest first: one for each cause.", invoke_without_command=True)

AlertId = Annotated[int, typer.Argument(help="The alert's id, as `alerts` shows it.", min=1, max=INTEGER_MAX)]


class AlertFilter(StrEnum):
    """Which alerts are listed."""

    OPEN = "open"
    CLOSED = "closed"
    ALL = "all"


def add_to(app: typer.Typer) -> None:
    alerts.callback()(show_alerts)
    alerts.command("ack")(acknowledge)
    alerts.command("close")(close)
    app.add_typer(alerts, name="alerts")


def show_alerts(
    context: typer.Context,
    all_of_them: Annotated[bool, typer.Option("--all", help="Show closed alerts, too.")] = False,
    closed: Annotated[bool, typer.Option("--closed", help="Show only closed alerts.")] = False,
    kind: Annotated[str | None, typer.Option("--kind", help="Show only this kind, for example ban.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Alerts, newest first: one for each cause. `alerts ack ID` and `alerts close ID` act on one."""
    if context.invoked_subcommand is not None:
        return
    config = settings()
    state = AlertFilter.ALL if all_of_them else AlertFilter.CLOSED if closed else AlertFilter.OPEN
    shown_alerts = in_database(
        config, lambda connection: list_alerts(connection, config.host, state=state.value, kind=kind, limit=limit)
    )
    if as_json:
        print_json([asdict(alert) for alert in shown_alerts])
    elif shown_alerts:
        console().print(rows("", ("id", "since", "severity", "kind", "×", "what", "state"), map(_line, shown_alerts)))
        if len(shown_alerts) == limit:
            console().print("There may be more: use --limit.", style="dim")
        for name in dict.fromkeys(
            alert.kind for alert in shown_alerts if alert.closed_at is None and alert.kind in KINDS
        ):
            about = KINDS[name]
            where = f"`{about.command}`; {runbook(name)}" if about.command else runbook(name)
            console().print(f"{name}: {about.next_step} ({where})", style="dim", markup=False)
    else:
        console().print(
            {AlertFilter.ALL: "No alerts.", AlertFilter.CLOSED: "No closed alerts."}.get(state, "No open alerts.")
        )


def acknowledge(alert_id: AlertId, reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Say that you are handling an alert; it stays open until its cause is gone."""
    _decide(alert_id, operator, reason, as_json, close=False)


def close(alert_id: AlertId, reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Close an informational alert; all others close by themselves when their cause is gone."""
    _decide(alert_id, operator, reason, as_json, close=True)


def _decide(alert_id: int, operator: str | None, reason: str, as_json: bool, *, close: bool) -> None:
    who, why = operator_of(operator), reason_of(reason)
    config = settings()
    decide = close_alert_by_hand if close else acknowledge_alert
    act = partial(decide, host=config.host, alert_id=alert_id, operator=who, reason=why)
    done: AlertDecided = in_database(config, act)
    if done.refused:
        raise CliError(f"not done: {done.refused}.")
    if as_json and done.alert is not None:
        print_json(asdict(done.alert))
        return
    console().print(f"alert {alert_id} is {'closed' if close else 'acknowledged'} by {who.name}", markup=False)


def _line(alert: RaisedAlert) -> tuple[object, ...]:
    return alert.alert_id, alert.created_at, alert.severity, alert.kind, alert.count, alert.message, _state(alert)


def _state(alert: RaisedAlert) -> str:
    if alert.closed_at is not None:
        by = f" by {alert.closed_by}" if alert.closed_by else ""
        return f"closed{by}: {alert.close_reason or 'its cause is gone'}"
    return f"{alert.acknowledged_by} is handling it" if alert.acknowledged_by else "open"
