"""The roles' metrics for Prometheus: numbers by class, outcome and route. Never a payload, never an id.

Each role makes its own set on a registry at its entry point; nothing is registered by an import.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.host_state import HOST_STATES, HostState
from oldhost_sync.policy.rules.promise import APPLIED_BOUNDS_MS
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.store.read.figures import HostFigures, Waiting

_WAIT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400)
_CALL_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class RelayMetrics:
    """The relay's metrics. `condition` is 1 for the condition it is in, 0 for the others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        by_class, by_condition = ["host", "priority_class"], ["host", "condition"]
        self.relayed = counter("oldhost_sync_relayed_changes", "Changes handed to the writer", by_class)
        self.signals = counter("oldhost_sync_relay_signals", "Signals acknowledged by Temporal", ["host", "kind"])
        self.failures = counter("oldhost_sync_relay_failures", "Rounds that ended in an outage", by_condition)
        self.scheduled = counter("oldhost_sync_scheduled_recorded", "Scheduled changes recorded when due", ["host"])
        self.pruned = counter("oldhost_sync_pruned_rows", "Rows forgotten by retention", ["host"])
        name, text = "oldhost_sync_accepted_to_held_seconds", "From accepted until the writer has it"
        self.wait_seconds = Histogram(name, text, by_class, buckets=_WAIT_SECONDS, registry=registry)
        self.condition = gauge("oldhost_sync_relay_condition", "1 for the relay's present condition", by_condition)
        text = "1 for a host whose changes wait and that no relay serves, seen by any relay"
        self.unserved = gauge("oldhost_sync_unserved_host", text, ["host"])
        text = "How far MariaDB's clock is ahead of this process's, as last seen by a host's active relay"
        self.clock_difference = gauge("oldhost_sync_clock_difference_seconds", text)
        text = "Changes that the writer has, as last counted"
        self.unprocessed = gauge("oldhost_sync_relay_unprocessed", text, ["host"])


def show_role(registry: CollectorRegistry, role: str, looked_at: Callable[[], float]) -> None:
    """The metrics of every role: its process, and when it last checked itself (seconds since 1970; 0: never)."""
    ProcessCollector(namespace="oldhost_sync", registry=registry)
    text = "When this process last checked itself, in seconds since 1970"
    Gauge("oldhost_sync_role_looked_at_seconds", text, ["role"], registry=registry).labels(role).set_function(looked_at)


class FateMetrics:
    """The fates of changes, as read by the host's active relay; each is counted once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        by_fate = ["host", "priority_class", "outcome"]
        self.fates = counter("oldhost_sync_fates", "Changes that reached their fate", by_fate)
        late = "Changes that ended later than promised for the host"
        self.breaches = counter("oldhost_sync_promise_breaches", late, ["host", "promise"])

    def begin(self, host: str) -> None:
        """Show the host's breaches from 0 on: a counter whose first sample is 1 does not count as increased."""
        for promise in ("emergency", "consistency"):
            self.breaches.labels(host, promise)


@dataclass(frozen=True, slots=True)
class ExportedHost:
    """One host as its relay sees it. `imbalance`: by how many changes the books do not balance; None: not known."""

    figures: HostFigures
    state: HostState
    drain_s: float
    compression_ratio: float
    imbalance: int | None
    promises: Promises = USUAL_PROMISES


_BY_HOST: dict[str, tuple[str, Callable[[ExportedHost], float | None]]] = {
    "ban_seconds_left": ("Seconds until OldHost's ban is over", lambda shown: shown.figures.ban_left_s),
    "pause_seconds": ("Seconds since an operator paused the writer", lambda shown: shown.figures.paused_s or 0.0),
    "dead_letters": ("Undecided dead letters", lambda shown: shown.figures.dead_letters),
    "held_changes": ("TXN changes held behind dead letters", lambda shown: shown.figures.held),
    "scheduled_changes": ("Changes that will be recorded later", lambda shown: shown.figures.scheduled),
    "sessions_opened": ("Number of sessions so far (the epoch of the last one)", lambda shown: shown.figures.epoch),
    "drain_seconds": ("Seconds to drain the backlog, at the rate of five minutes", lambda shown: shown.drain_s),
    "compression_ratio": ("Ended changes per operation in the last hour", lambda shown: shown.compression_ratio),
    "books_imbalance": ("By how many changes the books do not balance", lambda shown: shown.imbalance),
}


class HostMetrics(Collector):
    """The last figures of each host that this relay is active for, while they are in date; a standby shows none."""

    def __init__(self, registry: CollectorRegistry, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._shown: dict[str, tuple[float, ExportedHost]] = {}
        self._monotonic = monotonic
        registry.register(self)

    def show(self, host: str, shown: ExportedHost, *, until: float) -> None:
        """`until`, in monotonic seconds, the figures are in date."""
        self._shown = {**self._shown, host: (until, shown)}

    def forget(self, host: str) -> None:
        """Another relay shows this host now."""
        self._shown = {each: shown for each, shown in self._shown.items() if each != host}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        now = self._monotonic()
        hosts = [(host, shown) for host, (until, shown) in sorted(self._shown.items()) if now <= until]
        for name, (text, read) in _BY_HOST.items():
            yield _family(name, text, ["host"], (([host], read(shown)) for host, shown in hosts))
        yield _family(
            "writer_state",
            "1 for the writer's present state",
            ["host", "state"],
            (([host, state], float(shown.state == state)) for host, shown in hosts for state in HOST_STATES),
        )
        yield _family(
            "open_alerts",
            "Open alerts",
            ["host", "severity"],
            (([host, name], count) for host, shown in hosts for name, count in shown.figures.open_alerts.items()),
        )
        waits = [
            (host, cls, shown.figures.waiting.get(cls, Waiting())) for host, shown in hosts for cls in PriorityClass
        ]
        by_class = ["host", "priority_class"]
        text = "Changes without a fate, including held ones"
        yield _family("waiting_changes", text, by_class, (([host, cls], each.changes) for host, cls, each in waits))
        text = "How long one may wait, as promised"
        promised = [([host, cls], shown.promises.of(cls) / 1000) for host, shown in hosts for cls in PriorityClass]
        yield _family("promised_seconds", text, by_class, promised)
        text = "How long the oldest of them has waited"
        yield _family("oldest_waiting_seconds", text, by_class, (([h, cls], each.oldest_s) for h, cls, each in waits))


def _family(
    name: str, text: str, labels: list[str], samples: Iterable[tuple[list[str], float | None]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"oldhost_sync_{name}", text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family


class AppliedWaits(Collector):
    """The time from accepted to applied, by class, as counted in the database, so restarts lose and repeat nothing.

    Shown by the host's active relay.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shown: dict[str, dict[str, tuple[dict[int, int], int]]] = {}
        registry.register(self)

    def show(self, host: str, by_class: Mapping[PriorityClass, tuple[dict[int, int], int]]) -> None:
        """For each class: changes by upper bound in ms (not cumulative), and the sum of their times in ms."""
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
    """In Prometheus's form: the number of changes up to each bound, and at the end the number of all."""
    buckets, so_far = [], 0
    for upto_ms in APPLIED_BOUNDS_MS:
        so_far += changes.get(upto_ms, 0)
        buckets.append((str(upto_ms / 1000), float(so_far)))
    return [*buckets, ("+Inf", float(sum(changes.values())))]


class DeliveryMetrics:
    """What waits for the webhook; each process that delivers alerts shows the same numbers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Alert events that the webhook has not accepted yet; shown while a webhook is set"
        self._undelivered = Gauge("oldhost_sync_undelivered_alerts", text, ["host"], registry=registry)

    def count(self, host: str, events: int) -> None:
        self._undelivered.labels(host).set(events)


class WorkerMetrics:
    """The metrics of the worker that holds the connection. Refusals for a gap or a replay must stay 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.operations = counter("oldhost_sync_operations", "Operations by outcome", ["host", "outcome"])
        name, text = "oldhost_sync_operation_seconds", "Time on the wire of one operation"
        self.service_seconds = Histogram(name, text, ["host"], buckets=_CALL_SECONDS, registry=registry)
        self.sessions = counter("oldhost_sync_sessions", "Sessions requested, by result", ["host", "state"])
        self.refusals = counter("oldhost_sync_host_refusals", "Refusals by OldHost", ["host", "reason"])
        text = "1 while this worker holds the connection"
        self.connection_open = gauge("oldhost_sync_connection_open", text, ["host"])
        self.epoch = gauge("oldhost_sync_session_epoch", "Epoch of this worker's session", ["host"])
        lost = "Sends that ended with an operation in doubt: no answer arrived, or an unreadable one"
        self.lost_replies = counter("oldhost_sync_lost_replies", lost, ["host"])
        used = "Changes that count as applied because their nonce was used: their answers were lost"
        self.unconfirmed = counter("oldhost_sync_unconfirmed", used, ["host"])
        waited = "Seconds that opening a session was delayed by the settle time"
        self.settle_seconds = counter("oldhost_sync_settle_seconds", waited, ["host"])

    def begin(self, hosts: Iterable[str]) -> None:
        """Show the counters of errors from 0 on for each of `hosts`."""
        for host in hosts:
            self.lost_replies.labels(host)
            self.unconfirmed.labels(host)
            self.settle_seconds.labels(host)
