"""docs/deployment.md tells every setting, with the default that it has."""

from __future__ import annotations

import re

from oldhost_sync.settings import Settings
from tests.architecture.project_files import ROOT
from tests.architecture.settings_table import PAGE, table, table_in


def test_the_table_tells_every_setting_as_it_is() -> None:
    assert table_in(PAGE.read_text()) == table(), "run `python -m tests.architecture.settings_table`"


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:deploy|docs)/[\w./-]+)`", PAGE.read_text()))
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []
