"""Records the alerts that the workflow raises: one row per cause.

Only the row is written here. The webhook delivers it outside of the workflow (`oldhost_sync.delivery`), which must go
on, and begin a new run, while the webhook does not answer. The writer raises an alert for each dead letter, since it
does not know OldHost's reasons; here they are grouped by reason. The cause of a ban, which only the ledger has, is
added here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from temporalio import activity

from activities import calling_writer
from oldhost_sync.policy.machine.actions import RaiseAlert, RecordAlerts
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.dead_letter_alerts import keep_dead_letter_alerts
from oldhost_sync.store.errors import StoreError, in_words
from oldhost_sync.store.read.host_condition import read_ban
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

DEAD_LETTER, DEAD_LETTERS = "dead:", "dead-letters"
# Kinds that are one cause whatever dedupe key the writer gives (None: its key counts); their counts are added up.
ADDED_UP = {"strays": "strays", "unreadable-signal": None}


@dataclass(frozen=True, slots=True)
class AlertActivities:
    """Works on the database only; has no state."""

    engine: Engine

    @activity.defn(no_thread_cancel_exception=True)
    def record_alerts(self, action: RecordAlerts) -> None:
        """Open or close alerts in this order, all or none; then those about dead letters, whose failure is logged."""
        _keep_all(self.engine, calling_writer.host(), action.alerts)


def _keep_all(engine: Engine, host: str, alerts: Sequence[RaiseAlert]) -> None:
    others = [alert for alert in alerts if not _is_of_dead_letters(alert)]
    if others:
        run_in_transaction(engine, lambda connection: _keep_each(connection, host, others))
    if len(others) < len(alerts):
        _follow_dead_letters(engine, host)


def _keep_each(connection: Connection, host: str, alerts: Sequence[RaiseAlert]) -> None:
    for alert in alerts:
        _keep(connection, host, alert)


def _follow_dead_letters(engine: Engine, host: str) -> None:
    """A failure must not keep the next alerts waiting. The next list that has one about dead letters tries again, and
    so does the relay's check, whatever the writer tells.
    """
    try:
        run_in_transaction(engine, lambda connection: keep_dead_letter_alerts(connection, host))
    except (StoreError, DBAPIError) as error:
        logger.warning("the alerts about dead letters of %s could not be brought in line: %s", host, in_words(error))


def _is_of_dead_letters(alert: RaiseAlert) -> bool:
    return alert.dedupe_key == DEAD_LETTERS or alert.dedupe_key.startswith(DEAD_LETTER)


def _keep(connection: Connection, host: str, alert: RaiseAlert) -> None:
    if alert.close:
        close_alert(connection, host, alert.dedupe_key, sequence=alert.sequence)
        return
    raise_alert(
        connection,
        host=host,
        kind=alert.kind,
        severity=alert.severity,
        message=_message(connection, host, alert),
        dedupe_key=ADDED_UP.get(alert.kind) or alert.dedupe_key,
        change_id=alert.change_id,
        count=alert.count,
        sequence=alert.sequence,
        adds=alert.kind in ADDED_UP,
    )


def _message(connection: Connection, host: str, alert: RaiseAlert) -> str:
    ban = read_ban(connection, host) if alert.kind == "ban" else None
    return alert.message if ban is None else f"{alert.message} {ban.cause}"
