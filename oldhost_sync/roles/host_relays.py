"""A relay for each host that a process serves, built from the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.host_relay import HostRelay, SharedPolls
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.writers import TemporalWriters
from oldhost_sync.settings import Settings
from oldhost_sync.store.retention import RetentionDays
from oldhost_sync.telemetry import RelayMetrics
from oldhost_sync.traces.tracer import Tracer

logger = logging.getLogger(__name__)


def host_relays(
    settings: Settings,
    transactions: Mapping[str, Transactions],
    writers: TemporalWriters,
    metrics: RelayMetrics,
    owner: str,
    tracer: Tracer | None,
    conditions: Conditions,
) -> dict[str, HostRelay]:
    """The relays by host; they share the polls. `owner` names this process in the leases."""
    pace = RelayPace(retention=_kept(settings)).within(settings.debounce_seconds)
    polls = SharedPolls.at(pace, transactions["outbox"], owner)
    folder = None if settings.settlement_dir is None else Path(settings.settlement_dir)
    if folder is None:
        logger.info("the ledger is not pruned, and no settlement files are written: SYNC_SETTLEMENT_DIR is not set")
    return {
        host: HostRelay(
            *(transactions, partial(writers.signal, host), host, owner, polls, pace, metrics, tracer),
            settlement_dir=folder,
            conditions=conditions,
        )
        for host in settings.hosts()
    }


def _kept(settings: Settings) -> RetentionDays:
    return RetentionDays(
        changes=settings.retention_changes_days,
        alerts=settings.retention_alerts_days,
        audit=settings.retention_audit_days,
        ledger=settings.retention_ledger_days,
    )
