"""Leaks: what must not grow while the product works, measured beside a soak.

Every few seconds: memory and open files of each role, connections at MariaDB, rows of each table, the writer's history.
A line is laid through what was measured after the first ten minutes; its slope is printed, and what rises by more than
its measure is called a leak. A role that is started again, and a relay that takes the lead or loses it, begins a life
of its own: lines are laid through lives.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.temporal.writer_health import describe_writer
from tests.faults.product import Product

SAMPLE_SECONDS = 5.0
# Before, pools fill and caches grow; of a shorter soak it is the first third.
SETTLED_AFTER_SECONDS = 600.0
# Of each life of a process: its libraries are loaded, its pools are filled.
WARM_AFTER_SECONDS = 60.0
SAMPLES_MIN = 10

# These get rows with each change, each start of a role, or each ten minutes, until retention or a ring's end takes
# them: their slopes are told, and no leak.
GROWING = frozenset(
    {
        "alert_events",
        "alerts",
        "host_sessions",
        "late_emergencies",
        "load_samples",
        "nonce_requests",
        "nonce_requests_archive",
        "operator_audit",
        "outbox_events",
        "pending_fates",
        "token_usage",
        "workers",
    }
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure may rise by so much, or by this share of its mean, over what was measured."""

    unit: str
    rise_max: float
    share_max: float


MEASURES: Mapping[str, Measure] = {
    "memory": Measure("MiB", 6.0, 0.08),
    "files": Measure("", 3.0, 0.05),
    "connections": Measure("", 3.0, 0.1),
    "rows": Measure("", 30.0, 0.1),
    "growing": Measure("rows", math.inf, math.inf),
    "history": Measure("events", 200.0, 0.4),
}

Life = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Slope:
    """Through all lives of one figure, at this mean; `seconds`: of the longest life."""

    name: str
    per_hour: float
    mean: float
    seconds: float

    @property
    def measure(self) -> Measure:
        return MEASURES[self.name.split()[0]]

    @property
    def is_level(self) -> bool:
        rise = self.per_hour * self.seconds / 3600
        return rise <= max(self.measure.rise_max, self.measure.share_max * self.mean)

    @property
    def told(self) -> str:
        """The figure's mean and slope."""
        return f"{self.mean:,.1f} {self.measure.unit}, {self.per_hour:+,.1f} an hour".replace(" ,", ",")

    def __str__(self) -> str:
        return f"{self.name}: {self.told}"


def slope(name: str, lives: Iterable[Life]) -> Slope | None:
    """By least squares, each life about its own mean; None where too little was measured."""
    kept = [life for life in lives if len(life) >= 2]
    count = sum(map(len, kept))
    if count < SAMPLES_MIN:
        return None
    above = below = total = 0.0
    for life in kept:
        mean_t, mean = (math.fsum(values) / len(life) for values in zip(*life, strict=True))
        above += math.fsum((at - mean_t) * (value - mean) for at, value in life)
        below += math.fsum((at - mean_t) ** 2 for at, _ in life)
        total += mean * len(life)
    longest = max(life[-1][0] - life[0][0] for life in kept)
    per_second = above / below if below else 0.0
    return Slope(name, per_second * 3600, total / count, longest)


@dataclass
class LeakWatch:
    """`with LeakWatch(product, seconds) as watch: …`, then `slopes()`."""

    product: Product
    seconds: float
    roles: Sequence[str]
    _leader: str = ""
    _lives: dict[str, dict[Hashable, Life]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def slopes(self) -> list[Slope]:
        """Of all that was measured long enough, by name."""
        found = (slope(name, lives.values()) for name, lives in self._lives.items())
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    def samples(self) -> dict[str, list[Life]]:
        """What was measured: seconds since the start and value, life by life."""
        return {name: list(lives.values()) for name, lives in sorted(self._lives.items())}

    @property
    def settled_after(self) -> float:
        return min(SETTLED_AFTER_SECONDS, self.seconds / 3)

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            at = time.monotonic() - self._began
            if at >= self.settled_after:
                for name, life, value in self._sample():
                    self._lives[name][life].append((at, value))

    def _sample(self) -> Iterator[tuple[str, Hashable, float]]:
        """Name, life, value of all that can be measured now; what is away at this moment is left out."""
        with contextlib.suppress(Exception):
            self._leader = str(self.product.sql("SELECT owner FROM relay_lease")[0]["owner"])
        for role in self.roles:
            if self._is_warm(role):
                pid = self.product.children[role].pid
                # Who begins to lead fills its pools: seven connections and what they need.
                life = (pid, self._leader if role.startswith("relay") else "")
                with contextlib.suppress(OSError):
                    yield f"memory {role}", life, memory_mib(pid)
                    yield f"files {role}", life, open_files(pid)
        with contextlib.suppress(Exception):
            yield from self._database()
        with contextlib.suppress(RPCError, RuntimeError, OSError):
            yield "history", 0, self.product.ask(self._history)

    def _is_warm(self, role: str) -> bool:
        child = self.product.children[role]
        return child.running and time.monotonic() - child.started_at > min(WARM_AFTER_SECONDS, self.settled_after)

    def _database(self) -> Iterator[tuple[str, Hashable, float]]:
        sql = self.product.sql
        # Each new process opens its connections one by one, as it needs them.
        if all(self._is_warm(role) for role in self.roles):
            life = (self._leader, *(self.product.children[role].pid for role in self.roles))
            yield "connections MariaDB", life, float(sql("SHOW STATUS LIKE 'Threads_connected'")[0]["Value"])
        for table in [next(iter(row.values())) for row in sql("SHOW TABLES")]:
            kind = "growing" if table in GROWING else "rows"
            yield f"{kind} {table}", 0, float(sql(f"SELECT COUNT(*) AS n FROM `{table}`")[0]["n"])

    async def _history(self, client: Client) -> float:
        described = await describe_writer(client, self.product.host)
        return 0.0 if described is None else float(described.workflow_execution_info.history_length)


def memory_mib(pid: int) -> float:
    """Resident memory. OSError when the process is gone."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1024 / 1024


def open_files(pid: int) -> float:
    """Sockets and files. OSError when the process is gone."""
    return float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
