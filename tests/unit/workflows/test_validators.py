"""What an update's validator refuses before anything is in the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workflows.direct_changes import check_change, check_urgent_change
from workflows.intake import CHANGE_BYTES_MAX


def change(text: str) -> dict[str, Any]:
    return {"entity_type": "unit", "entity_id": "a", "event_type": "checked_out", "payload": {"note": text}}


def test_a_change_is_measured_as_the_json_that_history_holds() -> None:
    """Each of these characters has six bytes there."""
    with pytest.raises(ValueError, match=f"larger than {CHANGE_BYTES_MAX} bytes"):
        check_change(change("é" * (CHANGE_BYTES_MAX // 6)))


def test_a_change_that_python_writes_longer_than_json_does_is_taken() -> None:
    backslashes = "'\"" * (CHANGE_BYTES_MAX // 3 - 100)
    assert len(repr(backslashes)) > len(backslashes)
    check_change(change(backslashes))


@pytest.mark.parametrize("check", [check_change, check_urgent_change])
def test_an_incomplete_change_and_an_unknown_field_are_not_in_history(check: Callable[[dict[str, Any]], None]) -> None:
    check(change("complete"))
    with pytest.raises(ValueError, match="the change has unknown fields: guest"):
        check(change("") | {"guest": "Ana"})
    with pytest.raises(ValueError, match="the change lacks entity_id"):
        check({name: value for name, value in change("").items() if name != "entity_id"})
