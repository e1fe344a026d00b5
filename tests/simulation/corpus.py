"""Many seeds, on one core or several, and what they came to together. Workers are processes; order decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.kinds_of_host import kind_named
from tests.simulation.shape import Verdict
from tests.simulation.sometimes import Sometimes
from tests.simulation.world import play


@dataclass
class Corpus:
    """The sum of many runs."""

    runs: int = 0
    virtual_s: float = 0.0
    wall_s: float = 0.0
    operations: int = 0
    changes: int = 0
    worst_recovery_s: float = 0.0
    failed: list[Verdict] = field(default_factory=list)
    sometimes: Sometimes = field(default_factory=Sometimes)
    faults: dict[str, int] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        self.runs += 1
        self.virtual_s += verdict.virtual_s
        self.operations += verdict.operations
        self.changes += verdict.changes
        self.worst_recovery_s = max(self.worst_recovery_s, verdict.recovery_s)
        self.sometimes.add(verdict.sometimes)
        self.digests[verdict.seed] = verdict.digest
        for name, count in verdict.faults.items():
            self.faults[name] = self.faults.get(name, 0) + count
        if verdict.violations:
            self.failed.append(verdict)

    @property
    def digest_lines(self) -> str:
        """A line for each seed: its number and the digest of its event log."""
        return "".join(f"{seed} {digest}\n" for seed, digest in sorted(self.digests.items()))

    @property
    def faults_injected(self) -> int:
        return sum(self.faults.values())

    @property
    def virtual_hours_per_minute(self) -> float:
        return self.virtual_s / 3600 / max(self.wall_s / 60, 1e-9)


def safely(seed: int, host: str = "") -> Verdict:
    """A run that breaks is a run that failed."""
    try:
        return play(seed, kind=kind_named(host))
    except Exception:
        return Verdict(seed, [f"the simulation itself broke:\n{traceback.format_exc()}"], {}, "", 0.0, 0, 0)


def simulate(
    seeds: Iterable[int],
    workers: int,
    each: Callable[[Verdict], None] = lambda verdict: None,
    *,
    stop_at_first: bool = False,
    host: str = "",
) -> Corpus:
    """Play all seeds; `each` is told of every verdict as it comes. `stop_at_first`: one failure is enough. `host`: its
    kind, if it is another one than OldHost.
    """
    corpus = Corpus()
    began = time.monotonic()
    for verdict in _verdicts(list(seeds), workers, partial(safely, host=host)):
        corpus.add(verdict)
        each(verdict)
        if stop_at_first and corpus.failed:
            break
    corpus.wall_s = time.monotonic() - began
    return corpus


def _verdicts(seeds: list[int], workers: int, played: Callable[[int], Verdict]) -> Iterator[Verdict]:
    if workers <= 1:
        yield from map(played, seeds)
        return
    # They only compute, in virtual time: whoever lives in real time beside them goes first, but not by far.
    with multiprocessing.get_context("spawn").Pool(workers, initializer=os.nice, initargs=(5,)) as pool:
        yield from pool.imap_unordered(played, seeds, chunksize=4)


def replay_command(seed: int, host: str = "") -> str:
    return f"python -m tests.simulation --seed {seed}{f' --host {host!r}' if host else ''}"
