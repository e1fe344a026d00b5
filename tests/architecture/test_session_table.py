"""The page about the wire shows the states of session and breaker as they are decided."""

from __future__ import annotations

from tests.architecture.session_table import PAGE, table


def test_the_page_has_the_table_of_states() -> None:
    assert table() in PAGE.read_text(), "python -m tests.architecture.session_table"
