"""Compressed time: one factor for all times of OldHost and the policy; what is not compressed is listed below.

Arrivals, OldHost's latency, the debounce, its cap and the ban are divided by the factor. Bursts keep their 300 changes
a second, because the API promises to accept that rate. Not compressed are the product's own delays (relay, Temporal,
database) and the second within which a request must be written: in the demonstration they count `factor` times as much
as in reality.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from oldhost_sync.host_settings import SEND_WITHIN_SECONDS, SETTLE_MARGIN_SECONDS
from oldhost_sync.planner import Scenario
from oldhost_sync.policy.tuning import EMERGENCY_MS
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.stack.servers import StackPlan

# 1,800 s of arrivals and 900 s of ban take 90 s: the whole demonstration, with the burst, start and stop, two minutes.
FACTOR = 30.0
# Long compared with 13 ms, so that a busy machine causes no ambiguous answers.
REQUEST_TIMEOUT_SECONDS = 2.0
HOST = "oldhost"


@dataclass(frozen=True, slots=True)
class Compressed:
    """A scenario in real time, and the same in compressed time, which the servers run."""

    real: Scenario
    factor: float

    @property
    def played(self) -> Scenario:
        real, factor = self.real, self.factor
        spans = ("duration_s", "ban_s", "latency_ms", "debounce_s", "max_wait_s")
        shorter = {name: getattr(real, name) / factor for name in spans}
        return replace(real, ban_at_s=None if real.ban_at_s is None else real.ban_at_s / factor, **shorter)

    @property
    def emergency_ms(self) -> float:
        """The promise for emergencies, in compressed time."""
        return EMERGENCY_MS / self.factor


def peak(factor: float = FACTOR, *, changes: int = 10_000, units: int = 2_500, seed: int = 1) -> Compressed:
    """The peak half hour with one ban in the middle. Fewer changes take proportionally less time."""
    whole = Scenario()
    share = changes / whole.changes
    duration_s = whole.duration_s * share
    real = replace(
        whole,
        changes=changes,
        units=units,
        seed=seed,
        duration_s=duration_s,
        burst_changes=round(whole.burst_changes * share),
        ban_at_s=duration_s / 2,
        ban_s=whole.ban_s * share,
    )
    return Compressed(real, factor)


def settings_for(compressed: Compressed) -> Settings:
    """The roles' settings. All are given, so that none comes from the user's own environment."""
    played = compressed.played
    return load_settings(
        database_url=None,
        oldhost_url=None,
        hosts_file=None,
        host=HOST,
        debounce_seconds=played.debounce_s,
        max_wait_seconds=played.max_wait_s,
        early_send_seconds=played.early_send_s or None,
        txn_per_lww=played.txn_per_lww,
        ban_seconds=played.ban_s,
        request_timeout_seconds=REQUEST_TIMEOUT_SECONDS,
        settle_seconds=SEND_WITHIN_SECONDS + REQUEST_TIMEOUT_SECONDS + SETTLE_MARGIN_SECONDS,
        sweep_seconds=60,
        probe_seconds=60,
        api_tokens=(),
        api_bind="127.0.0.1:0",
        quota_emergencies=0,  # those of half an hour arrive within a minute or two
        metrics_bind=None,
        temporal_metrics_bind=None,
        alert_webhook_url=None,
        alert_webhook_secret=None,
        webhooks_file=None,
    )


def plan_for(compressed: Compressed, folder: Path) -> StackPlan:
    """The whole stack on free ports."""
    return StackPlan(
        folder=folder,
        mariadb_port=0,
        temporal_port=0,
        temporal_ui_port=0,
        oldhost_port=0,
        oldhost_admin_port=0,
        latency_ms=compressed.played.latency_ms,
    )


def environment() -> Mapping[str, str]:
    """The environment of this process, without the servers that it names."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SYNC_", "TEMPORAL_"))}
