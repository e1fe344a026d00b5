"""Every kind of host under the nemeses: each change once, or a halt or a letter that names it; no gap, and no replay
but where that is how a host tells.
"""

from __future__ import annotations

import os

import pytest

from tests.kinds_of_host import KINDS
from tests.simulation.corpus import Corpus, replay_command, simulate
from tests.simulation.world import play

# Hundreds are `python -m tests.simulation --seeds 200 --host KIND`.
SEEDS, MORE_SEEDS = 2, 20
# Seeds that once showed a fault of the product (what it was is in the change that mended it).
KEPT = [("anew with each session, outcome by id", 16)]


@pytest.mark.parametrize("host", KINDS)
def test_a_kind_of_host_keeps_every_promise(host: str) -> None:
    assert [(seed, play(seed, kind=KINDS[host]).violations) for seed in range(SEEDS)] == [
        (seed, []) for seed in range(SEEDS)
    ]


@pytest.mark.parametrize(("host", "seed"), KEPT)
def test_a_seed_of_a_kind_that_once_failed_keeps_every_promise(host: str, seed: int) -> None:
    assert play(seed, kind=KINDS[host]).violations == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("host", KINDS)
def test_many_seeds_of_a_kind_of_host_keep_every_promise(host: str) -> None:
    corpus: Corpus = simulate(range(SEEDS, MORE_SEEDS), os.cpu_count() or 1, host=host)
    failed = "\n".join(f"{replay_command(one.seed, host)}: {one.violations[0]}" for one in corpus.failed[:10])
    assert not corpus.failed, f"{len(corpus.failed)} of {corpus.runs} seeds failed:\n{failed}"
