"""Recorded histories replay with today's code, whatever the hash seed: a running writer survives the next deploy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oldhost_sync.policy.machine import machine
from oldhost_sync.policy.machine.release import RELEASE, RELEASE_MIN, release_of_marks
from tests.replay.record import HISTORIES, SCENARIOS
from tests.replay.replayer import history_of, marks, replay

PATHS = sorted(HISTORIES.glob("*.json"))


def release_kept(path: Path) -> int | None:
    return release_of_marks(marks(history_of(path)))


def test_every_scenario_has_its_recorded_history() -> None:
    assert [path.stem for path in PATHS] == sorted(SCENARIOS)


def test_every_release_has_a_recorded_history() -> None:
    """A run of the first has its mark, too: else it would not be asked to continue as a run of the next."""
    assert {release_kept(path) for path in PATHS} == set(range(RELEASE_MIN, RELEASE + 1))


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_histories_replay_under_any_hash_seed(seed: str) -> None:
    command = [sys.executable, "-m", "tests.replay.replayer", *map(str, PATHS)]
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("replayed") == len(PATHS)


def test_a_writer_that_decides_otherwise_does_not_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay is alive: one batch in flight instead of two is noticed."""
    monkeypatch.setattr(machine, "SENDS_IN_FLIGHT_MAX", 1)
    assert asyncio.run(replay(history_of(HISTORIES / "peak.json"))).replay_failure is not None


def test_the_next_release_replays_the_runs_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So each of its workers can continue them."""
    monkeypatch.setattr("oldhost_sync.policy.machine.release.RELEASE", RELEASE + 1)
    assert asyncio.run(replay(history_of(HISTORIES / "peak.json"))).replay_failure is None
