"""Writes what the detectors of this process report: the one place of a relay that opens and closes their alerts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.duty import HostFailures
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import keep_condition

logger = logging.getLogger(__name__)

# Without a statement while nothing changes.
KEPT_EVERY_SECONDS = 0.5


@dataclass(eq=False)
class ConditionKeeper:
    """A duty (see `duty`) of the whole process. A conflict is not retried: soon it is tried again, and the other hosts
    would wait.
    """

    name = "opening and closing alerts"
    host = "all hosts"
    pause_s = KEPT_EVERY_SECONDS

    transactions: Transactions
    conditions: Conditions

    async def run_once(self, now: float) -> float:
        with HostFailures() as failures:
            for step in self.conditions.due(now):
                with failures.of(step.host):
                    news = await self.transactions.run(partial(keep_condition, step=step), attempts=1)
                    self.conditions.written(step, now)
                    if news:
                        logger.warning(news)
        return KEPT_EVERY_SECONDS
