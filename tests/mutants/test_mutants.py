"""The harness is alive: a few mutants, quick to kill, are killed. All of them: `make mutants`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mutants import hunt as hunting
from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import ROOT, hunt
from tests.mutants.levels import Level
from tests.mutants.mutant import Mutant

QUICK = ("no send deadline", "an old version that comes after newer operations of its entity")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_patch_still_fits_the_product(mutant: Mutant) -> None:
    for patch in mutant.patches:
        assert (ROOT / patch.path).read_text().count(patch.old) == 1, patch


@pytest.mark.parametrize(
    "level", dict.fromkeys(level for mutant in MUTANTS for level in mutant.levels), ids=lambda level: level.name
)
def test_every_level_names_tests_that_exist(level: Level) -> None:
    assert [path for path in level.tests if not (ROOT / path).exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_killed(name: str) -> None:
    (mutant,) = [one for one in MUTANTS if one.name == name]
    assert hunt(mutant).level is not None


def test_a_level_that_hangs_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading from a pipe ends when no process has it open any more."""
    monkeypatch.setattr(hunting, "LEVEL_SECONDS_MAX", 3.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert not hunting.passes(["sh", "-c", f"exec 3> {pipe}; printf began >&3; sleep 600 & sleep 600"], tmp_path)
    os.set_blocking(reader, True)
    assert [os.read(reader, 16), os.read(reader, 16)] == [b"began", b""]
    os.close(reader)
