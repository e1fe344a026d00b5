"""docs/architecture.md says what is: the layers are the checked contract, the journey of a change names real files."""

from __future__ import annotations

import re
import tomllib

from tests.architecture.project_files import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
JOURNEY_FILES_MAX = 20


def journey() -> list[str]:
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_the_layers_are_those_that_the_linter_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "layers"]
    (shown,) = re.findall(r"```layers\n(.*?)```", PAGE, re.DOTALL)
    assert shown.splitlines() == contract["layers"]


def test_the_journey_of_a_change_touches_at_most_twenty_files() -> None:
    assert 10 <= len(journey()) == len(set(journey())) <= JOURNEY_FILES_MAX


def test_the_journey_names_files_that_exist() -> None:
    assert [name for name in journey() if not (ROOT / name).exists()] == []
