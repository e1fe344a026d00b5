"""What Temporal Cloud would bill, by the server's own count, and what a month of it costs.

The server counts the actions that its cloud bills in the metric `action`: each start of a workflow (a continue-as-new
too), signal, update, query, activity with its retries and heartbeats as far as they reach it, timer, and upsert of
search attributes. The rule: https://docs.temporal.io/cloud/actions; the metric:
https://docs.temporal.io/cloud/migrate/estimate-actions; the prices: https://docs.temporal.io/cloud/pricing.
"""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from dataclasses import dataclass

# Pay as you go, without a plan's fee or its discounts by volume (which begin at 5 million actions a month).
USD_PER_MILLION_ACTIONS = 50.0
USD_PER_ACTIVE_GB_HOUR = 0.042
USD_PER_RETAINED_GB_HOUR = 0.00105
HOURS_PER_MONTH = 744
# How long histories of ended runs are kept: long enough to look into an incident of last week.
RETENTION_DAYS = 7

_LINE = re.compile(r'^action\{action_type="([^"]+)",namespace="default".*\} ([0-9.e+]+)$', re.MULTILINE)


def actions(metrics_port: int) -> Counter[str]:
    """By type, since the server's start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        return parse_actions(answer.read().decode())


def parse_actions(text: str) -> Counter[str]:
    """Those of the namespace that writers run in; the server has workflows of its own."""
    found: Counter[str] = Counter()
    for name, count in _LINE.findall(text):
        found[name.removeprefix("command_").removeprefix("grpc_")] += int(float(count))
    return found


@dataclass(frozen=True, slots=True)
class Month:
    """In US dollars, of one host that is busy all the time."""

    actions: float
    active_storage: float
    retained_storage: float

    @property
    def total(self) -> float:
        return self.actions + self.active_storage + self.retained_storage


def month(operations_per_second: float, per_operation: float, history_bytes: float, run_bytes: float) -> Month:
    """`per_operation`: actions; `history_bytes`: of an operation; `run_bytes`: of a whole run, half of which is open
    on average.
    """
    hours = HOURS_PER_MONTH
    operations = operations_per_second * 3_600 * hours
    retained_gb = operations_per_second * 86_400 * RETENTION_DAYS * history_bytes / 1e9
    return Month(
        actions=operations * per_operation / 1e6 * USD_PER_MILLION_ACTIONS,
        active_storage=run_bytes / 2 / 1e9 * hours * USD_PER_ACTIVE_GB_HOUR,
        retained_storage=retained_gb * hours * USD_PER_RETAINED_GB_HOUR,
    )
