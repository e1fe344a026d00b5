"""How often and how much the relay's duties work; policy/limits.py has the reason for each number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oldhost_sync.policy import limits
from oldhost_sync.store.retention import RetentionDays


@dataclass(frozen=True, slots=True)
class RelayPace:
    batch_refs: int = limits.RELAY_BATCH_REFS_MAX
    signal_interval_s: float = limits.RELAY_SIGNAL_INTERVAL_SECONDS
    calm_interval_s: float = limits.RELAY_CALM_INTERVAL_SECONDS
    backlog_interval_s: float = limits.RELAY_BACKLOG_INTERVAL_SECONDS
    poll_s: float = limits.RELAY_POLL_SECONDS
    wait_s: float = limits.RELAY_WAIT_SECONDS
    schedule_interval_s: float = limits.RELAY_SCHEDULE_INTERVAL_SECONDS
    schedule_batch: int = limits.RELAY_SCHEDULE_BATCH_MAX
    unprocessed_max: int = limits.RELAY_UNPROCESSED_MAX
    count_interval_s: float = limits.RELAY_COUNT_INTERVAL_SECONDS
    lease_s: float = limits.RELAY_LEASE_SECONDS
    offer_interval_s: float = limits.RELAY_OFFER_SECONDS
    pause_s: float = limits.RELAY_PAUSE_SECONDS
    pause_max_s: float = limits.RELAY_PAUSE_SECONDS_MAX
    retention: RetentionDays = field(default_factory=RetentionDays)
    retention_rows: int = limits.RETENTION_BATCH_ROWS
    retention_interval_s: float = limits.RETENTION_INTERVAL_SECONDS
    settlement_interval_s: float = limits.SETTLEMENT_INTERVAL_SECONDS

    def within(self, debounce_s: float) -> RelayPace:
        """The same, with no signal's interval longer than a thirtieth of the debounce (but at least `poll_s`)."""
        most = max(self.poll_s, debounce_s / limits.RELAY_DEBOUNCE_PER_SIGNAL)
        return replace(
            self,
            signal_interval_s=min(self.signal_interval_s, most),
            calm_interval_s=min(self.calm_interval_s, most),
            backlog_interval_s=min(self.backlog_interval_s, most),
        )
