"""docs/architecture.md says what is: the journey of a change names real files. And every module stands in a layer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.architecture.project_files import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
JOURNEY_FILES_MAX = 20


def journey() -> list[str]:
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_the_journey_of_a_change_touches_at_most_twenty_files() -> None:
    assert 10 <= len(journey()) == len(set(journey())) <= JOURNEY_FILES_MAX


def test_the_journey_names_files_that_exist() -> None:
    assert [name for name in journey() if not (ROOT / name).exists()] == []


def modules(folder: Path) -> set[str]:
    """The modules and packages in a folder of the repository, by their full names."""
    return {
        ".".join(path.with_suffix("").relative_to(ROOT).parts)
        for path in folder.iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem != "__init__")
    }


def test_every_module_stands_in_a_layer() -> None:
    """A package stands for all in it, or each of its modules for itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "layers"]
    stand = {name.strip("() ") for layer in contract["layers"] for name in layer.split(" : ")}
    there = {name for folder in ("oldhost_sync", "workflows") for name in modules(ROOT / folder)}
    for package in [each for each in there - stand if (ROOT / each.replace(".", "/")).is_dir()]:
        there = there - {package} | modules(ROOT / package.replace(".", "/"))
    assert sorted(there - stand) == []
    assert sorted(name for name in stand - there if "." in name) == []
