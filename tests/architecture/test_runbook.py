"""Each kind of alert is in the code, in the runbook and in use: none of the three knows one that the others don't."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from oldhost_sync.policy.rules.alert_kinds import KINDS, Kind, runbook
from tests.architecture.project_files import ROOT, python_files
from tests.architecture.runbook import PAGE, RULES, opening, rules

SECTIONS = re.findall(r"^### Alert ([a-z-]+)$", PAGE.read_text(), re.MULTILINE)


def test_every_kind_has_one_section_and_every_section_has_a_kind() -> None:
    assert [*KINDS] == [*get_args(Kind)]
    assert sorted(SECTIONS) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_runbook_says_what_the_code_says(kind: str) -> None:
    assert opening(kind) in PAGE.read_text(), "run `python -m tests.architecture.runbook`"


def test_prometheus_has_the_rules_of_the_code() -> None:
    assert RULES.read_text() == rules(), "run `python -m tests.architecture.runbook`"


@pytest.mark.parametrize("kind", KINDS)
def test_no_next_step_needs_a_terminal(kind: str) -> None:
    """The console shows them, too."""
    assert "`" not in KINDS[kind].next_step


@pytest.mark.parametrize("kind", KINDS)
def test_the_anchor_of_a_kind_is_its_sections_heading(kind: str) -> None:
    page, _, anchor = runbook(kind).partition("#")
    assert f"\n### {anchor.replace('-', ' ', 1).capitalize()}\n" in (ROOT / page).read_text()


PRODUCT = ("activities", "oldhost_sync", "workflows")


def test_every_kind_is_raised_somewhere() -> None:
    """The type checker holds the reverse: the policy raises no kind that is not listed."""
    product = [path for path in python_files() if path.relative_to(ROOT).parts[0] in PRODUCT]
    others = "\n".join(path.read_text() for path in product if path.name != "alert_kinds.py")
    assert [kind for kind in KINDS if f'"{kind}"' not in others] == []
