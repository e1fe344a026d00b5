"""The roles' metrics for Prometheus: numbers by class, outcome and route. Never a payload, never an id.

Each role makes its own set on a registry at its entry point; nothing is registered by an import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.promise import APPLIED_BOUNDS_MS

_WAIT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400)
_CALL_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class RelayMetrics:
    """What the relay does: `condition` is 1 for the one it is in, 0 for the others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        by_class, by_condition = ["host", "priority_class"], ["host", "condition"]
        self.relayed = counter("oldhost_sync_relayed_changes", "Changes handed to the writer", by_class)
        self.signals = counter("oldhost_sync_relay_signals", "Signals acknowledged by Temporal", ["host", "kind"])
        self.failures = counter("oldhost_sync_relay_failures", "Rounds that ended in an outage", by_condition)
        self.scheduled = counter("oldhost_sync_scheduled_recorded", "Scheduled changes recorded when due", ["host"])
        self.pruned = counter("oldhost_sync_pruned_rows", "Rows forgotten by retention", ["host"])
        name, told = "oldhost_sync_accepted_to_held_seconds", "From accepted to held by the writer"
        self.wait_seconds = Histogram(name, told, by_class, buckets=_WAIT_SECONDS, registry=registry)
        self.condition = gauge("oldhost_sync_relay_condition", "1 for the relay's present condition", by_condition)
        held = "Changes held by the writer, as last counted"
        self.unprocessed = gauge("oldhost_sync_relay_unprocessed", held, ["host"])


class AppliedWaits(Collector):
    """From accepted to applied, by class, as the database has counted it: restarts neither lose nor repeat anything.

    Shown by the relay that is active for the host.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shown: dict[str, dict[str, tuple[dict[int, int], int]]] = {}
        registry.register(self)

    def show(self, host: str, by_class: Mapping[PriorityClass, tuple[dict[int, int], int]]) -> None:
        """For each class: changes by upper bound in ms (not cumulated), and the sum of what they took in ms."""
        self._shown = {**self._shown, host: {cls.value: waits for cls, waits in by_class.items()}}

    def forget(self, host: str) -> None:
        """Another relay shows this host now."""
        self._shown = {each: waits for each, waits in self._shown.items() if each != host}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "oldhost_sync_accepted_to_applied_seconds", "From accepted to applied", labels=["host", "priority_class"]
        )
        for host, by_class in sorted(self._shown.items()):
            for cls, (changes, total_ms) in sorted(by_class.items()):
                family.add_metric([host, cls], _cumulated(changes), total_ms / 1000)
        yield family


def _cumulated(changes: dict[int, int]) -> list[tuple[str, float]]:
    """As Prometheus wants it: the changes up to each bound, and all of them at the end."""
    buckets, so_far = [], 0
    for upto_ms in APPLIED_BOUNDS_MS:
        so_far += changes.get(upto_ms, 0)
        buckets.append((str(upto_ms / 1000), float(so_far)))
    return [*buckets, ("+Inf", float(sum(changes.values())))]


class WorkerMetrics:
    """What the worker that holds the connection does. Refusals for a gap or a replay must stay 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.operations = counter("oldhost_sync_operations", "Operations by what became of them", ["host", "outcome"])
        name, told = "oldhost_sync_operation_seconds", "Time on the wire of one operation"
        self.service_seconds = Histogram(name, told, ["host"], buckets=_CALL_SECONDS, registry=registry)
        self.sessions = counter("oldhost_sync_sessions", "Sessions asked for, by what was found", ["host", "state"])
        self.refusals = counter("oldhost_sync_host_refusals", "Refusals by OldHost", ["host", "reason"])
        held = "1 while this worker holds the connection"
        self.connection_open = gauge("oldhost_sync_connection_open", held, ["host"])
        self.epoch = gauge("oldhost_sync_session_epoch", "Epoch of this worker's session", ["host"])
