"""The table of every setting in docs/deployment.md: `python -m tests.architecture.settings_table` writes it anew."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic.fields import FieldInfo

from oldhost_sync.settings import Settings
from tests.architecture.project_files import ROOT

PAGE = ROOT / "docs" / "deployment.md"
HEAD = "|setting|default|meaning|\n|---|---|---|\n"


def table() -> str:
    """Every setting in the order of `settings.py`, one a line."""
    return HEAD + "".join(_row(name, field) for name, field in Settings.model_fields.items())


def _row(name: str, field: FieldInfo) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    return f"|`SYNC_{name.upper()}`|{_shown(field.get_default(call_default_factory=True))}|{meaning}|\n"


def _shown(default: Any) -> str:
    if isinstance(default, Enum):
        return f"`{default.value}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return "" if default is None or default in ((), {}) else f"`{default}`"


def table_in(page: str) -> str:
    """The table as it stands in the page: from its head to the next line that is no row."""
    rest = page[page.index(HEAD) :]
    rows = rest.splitlines(keepends=True)
    end = next((number for number, row in enumerate(rows) if not row.startswith("|")), len(rows))
    return "".join(rows[:end])


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(page.replace(table_in(page), table()))


if __name__ == "__main__":
    main()
