"""What is kept for the release before, and that nothing is kept for an older one."""

from __future__ import annotations

import re

from oldhost_sync.policy.machine.release import RELEASE, RELEASE_MIN
from oldhost_sync.policy.machine.snapshot import VERSION, VERSION_MIN
from tests.architecture.project_files import ROOT

SOURCES = [path for folder in ("oldhost_sync", "workflows", "activities") for path in (ROOT / folder).rglob("*.py")]
# The change of behaviour that a release brought is named by a constant with its number.
NAMED = re.compile(r"^([A-Z_]+) = (\d+)$", re.MULTILINE)


def test_a_release_continues_the_runs_of_the_one_before_and_of_none_older() -> None:
    assert RELEASE - 1 <= RELEASE_MIN <= RELEASE


def test_no_decision_asks_for_a_release_that_no_run_has_any_more() -> None:
    text = (ROOT / "oldhost_sync" / "policy" / "machine" / "release.py").read_text()
    named = {name: int(number) for name, number in NAMED.findall(text) if name not in ("RELEASE", "RELEASE_MIN")}
    assert {name for name, number in named.items() if number <= RELEASE_MIN} == set()


def test_the_snapshot_s_versions_are_numbers_of_releases() -> None:
    assert 1 <= VERSION_MIN <= VERSION <= RELEASE


def test_runs_are_marked_with_their_release_and_with_nothing_else() -> None:
    """A mark of its own would be one more thing that each worker must know; a change of behaviour is a release."""
    patched = [path.name for path in SOURCES if re.search(r"\bpatched\b", path.read_text())]
    assert sorted(patched) == ["release.py", "sync_writer.py"]
    assert (ROOT / "workflows" / "sync_writer.py").read_text().count("patched") == 1
