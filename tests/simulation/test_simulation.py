"""Level L1: thousands of seeds keep every promise; the same seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.corpus import Corpus, replay_command, simulate
from tests.simulation.world import play

# At least the first; then more until every kind of trouble was met. Tens of thousands are `make simulate`.
SEEDS, SEEDS_MORE, SEEDS_MAX = 60, 20, 1000
# These meet "a reply given up before its time" and "stale", which one seed in hundreds does. When a change moves them,
# this test takes a minute longer: look for others.
RARE = (447, 99)
# Seeds that once showed a fault of the product (what it was is in the change that mended it).
KEPT = (19, 60, 112, 124, 544, 553, 1023, 1294, 1483, 2073, 2565, 2694, 2999, 3424, 3925, 6849, 11205)


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed_keeps_every_promise(seed: int) -> None:
    assert play(seed).violations == []


def test_the_same_seed_is_the_same_run() -> None:
    assert play(7).digest == play(7).digest
    assert play(7).digest != play(8).digest


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_a_seed_is_the_same_run_in_every_process(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "11", "--quiet"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"event log {play(11).digest}" in told.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_seeds_keep_every_promise_and_meet_every_kind_of_trouble() -> None:
    corpus = Corpus()
    simulate([*RARE, *range(SEEDS)], os.cpu_count() or 1, corpus.add)
    for first in range(SEEDS, SEEDS_MAX, SEEDS_MORE):
        if corpus.failed or not corpus.sometimes.missing():
            break
        simulate(range(first, first + SEEDS_MORE), os.cpu_count() or 1, corpus.add)
    failed = "\n".join(f"{replay_command(one.seed)}: {one.violations[0]}" for one in corpus.failed[:10])
    assert not corpus.failed, f"{len(corpus.failed)} of {corpus.runs} seeds failed:\n{failed}"
    assert corpus.sometimes.missing() == []
