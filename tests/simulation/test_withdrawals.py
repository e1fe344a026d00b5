"""Operators withdraw what waits at any moment, and every promise is kept (`withdrawals.py`)."""

from __future__ import annotations

import pytest

from tests.simulation.withdrawals import FIRST_SEED
from tests.simulation.world import play

# Thousands are `python -m tests.simulation --start 1000000`.
SEEDS = range(FIRST_SEED, FIRST_SEED + 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_withdrawn_never_reaches_oldhost_and_the_rest_does(seed: int) -> None:
    verdict = play(seed)
    assert verdict.violations == []
    assert verdict.sometimes["withdraw: changes withdrawn"]
