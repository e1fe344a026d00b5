"""The harness is alive: a few mutants, quick to kill, are killed. All of them: `make mutants`."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.hunt import ROOT, hunt

QUICK = ("no send deadline", "an old version that comes after newer operations of its entity")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_patch_still_fits_the_product(mutant: Mutant) -> None:
    for patch in mutant.patches:
        assert (ROOT / patch.path).read_text().count(patch.old) == 1, patch


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_killed(name: str) -> None:
    (mutant,) = [one for one in MUTANTS if one.name == name]
    assert hunt(mutant).level is not None
