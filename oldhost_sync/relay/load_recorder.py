"""Records a sample of each host's load every ten seconds, for charts. A failure only leaves a hole in a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from oldhost_sync.relay.host_failures import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.read.figures import RINGS, record_sample

SAMPLE_SECONDS = float(RINGS["1h"].step_s)


@dataclass(eq=False)
class LoadRecorder:
    """A duty (see `duty`) for all hosts of `leaderships`: records those whose active relay is in this process."""

    name = "recording the load"
    host = "all hosts"
    pause_s = SAMPLE_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]

    async def run_once(self, now: float) -> float:
        """Record one sample for each host. A conflict is not retried: the next sample includes what this one missed."""
        with HostFailures() as failures:
            for host, leadership in self.leaderships.items():
                if leadership.held(now):
                    with failures.of(host):
                        await self.transactions.run(partial(record_sample, host=host), attempts=1)
        return SAMPLE_SECONDS
