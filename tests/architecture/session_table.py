"""The table of docs/protocol.md about session and breaker, from the rows that decide it.

`python -m tests.architecture.session_table` writes it into the page; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from oldhost_sync.policy.machine.session import ROWS
from tests.architecture.project_files import ROOT

PAGE = ROOT / "docs" / "protocol.md"
HEAD = "|event|session|breaker|session after|breaker after|\n|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")


def table() -> str:
    rows = [
        (row.event.value, _any_of(row.phases), _any_of(row.breakers), _after(row.phase), _after(row.breaker))
        for row in ROWS
    ]
    return HEAD + "".join(f"|{'|'.join(row)}|\n" for row in rows)


def _any_of(states: Sequence[StrEnum]) -> str:
    return "any" if len(states) == len(type(states[0])) else ", ".join(state.value for state in states)


def _after(state: StrEnum | None) -> str:
    return "" if state is None else state.value


def main() -> None:
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))


if __name__ == "__main__":
    main()
