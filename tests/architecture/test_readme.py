"""What the documents tell people to type and to read exists: commands, their options, links, `make` targets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from oldhost_sync.cli.main import app
from tests.architecture.project_files import ROOT, project_files, text_of

DOCUMENTS = [path for path in project_files() if path.suffix == ".md"]
# What is typed: a line of an indented or fenced block, or a span between backticks.
_SPAN = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:^|[\s`(])oldhost-sync\s+(?P<rest>[a-z][^`#;&)]*)")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_MAKE = re.compile(r"(?:^ {4}|`)make (?P<target>[a-z-]+)\b", re.MULTILINE)
_TARGET = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)


def text(path: Path) -> str:
    return text_of(path) or ""


def typed_commands(document: str) -> list[str]:
    """Every `oldhost-sync …` that stands in a block or between backticks, from the command's name on."""
    blocks = [line.split(" # ")[0] for line in document.splitlines() if line.startswith("    ")]
    typed = blocks + _SPAN.findall(document)
    return [match["rest"].strip() for each in typed for match in _COMMAND.finditer(each)]


def why_unknown(typed: str) -> str | None:
    """What of `find ID --json` the program does not know; `api|relay` stands for one of them."""
    words = re.sub(r'"[^"]*"|\'[^\']*\'', "TEXT", typed).split()
    at: list[Any] = [typer.main.get_command(app)]
    while words and all(hasattr(command, "commands") for command in at):
        names = words.pop(0).split("|")
        unknown = [name for name in names if any(name not in command.commands for command in at)]
        if unknown:
            return f"no command {', '.join(unknown)}"
        at = [command.commands[name] for command in at for name in names]
    known = {name for command in at for option in command.params for name in (*option.opts, *option.secondary_opts)}
    passed_on = any(command.context_settings.get("ignore_unknown_options") for command in at)
    options = [word.split("=")[0] for word in words if word.startswith("-") and word not in {"-", "--help"}]
    missing = [] if passed_on else [option for option in options if option not in known]
    return f"no option {', '.join(missing)}" if missing else None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_that_is_named_exists(document: Path) -> None:
    told = [(typed, why_unknown(typed)) for typed in typed_commands(text(document))]
    assert [each for each in told if each[1] is not None] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_that_is_linked_exists(document: Path) -> None:
    targets = [match["target"].split("#")[0] for match in _LINK.finditer(text(document))]
    local = [target for target in targets if target and "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    targets = set(_TARGET.findall(text(ROOT / "Makefile")))
    assert [match["target"] for match in _MAKE.finditer(text(document)) if match["target"] not in targets] == []


def test_the_readme_names_commands_at_all() -> None:
    named = [typed.split()[0] for typed in typed_commands(text(ROOT / "README.md"))]
    assert {"change", "find", "submit", "status", "dead-letters", "resolve"} <= set(named)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert why_unknown("status --watch") is None
    assert why_unknown("api|relay|worker") is None
    assert why_unknown("statsu") == "no command statsu"
    assert why_unknown("dead-letters lits") == "no command lits"
    assert why_unknown("status --wach") == "no option --wach"
