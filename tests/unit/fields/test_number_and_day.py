"""Numbers, flags and days are taken in one form each; whatever else Python would read is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from oldhost_sync.fields.scalar import InvalidField, read_day, read_decimal, read_flag, read_json_whole, read_whole
from oldhost_sync.policy.limits import INTEGER_MAX, INTEGER_MIN

TAKEN: list[tuple[Callable[[str, str], object], str, object]] = [
    (read_whole, "0", 0),
    (read_whole, str(INTEGER_MIN), INTEGER_MIN),
    (read_whole, str(INTEGER_MAX), INTEGER_MAX),
    (read_decimal, "2.5", 2.5),
    (read_decimal, "-1e3", -1000.0),
    (read_flag, "true", True),
    (read_flag, "false", False),
    (read_day, "2026-11-01", date(2026, 11, 1)),
]
NOT_A_NUMBER = ["", " 1", "1 ", "+1", "1_0", "0x1", "٣", "１", "²", "nan", "inf", "Infinity", "true", "1\n"]
REFUSED: list[tuple[Callable[[str, str], object], str]] = [
    *((read_whole, text) for text in [*NOT_A_NUMBER, "1.0", "1e3", str(INTEGER_MAX + 1), "-" + "9" * 19, "9" * 5000]),
    *((read_decimal, text) for text in [*NOT_A_NUMBER, ".5", "1.", "1e999", "9" * 5000]),
    *((read_flag, text) for text in ["", "True", "TRUE", "1", "0", "yes", "on", " true", "true\n"]),
    *((read_day, text) for text in ["", "20261101", "2026-W44-7", "2026-305", "2026-02-30", "2026-11-01T00:00:00Z",
                                     "1969-12-31", "9999-01-01", "٢٠٢٦-11-01", "2026-11-01\n", " 2026-11-01"]),
]  # fmt: skip


@pytest.mark.parametrize(("parser", "text", "value"), TAKEN)
def test_the_documented_form_is_taken(parser: Callable[[str, str], object], text: str, value: object) -> None:
    assert parser("it", text) == value


@pytest.mark.parametrize(("parser", "text"), REFUSED)
def test_any_other_form_is_refused(parser: Callable[[str, str], object], text: str) -> None:
    with pytest.raises(InvalidField, match=r"^it must be "):
        parser("it", text)


@pytest.mark.parametrize("value", [0, 7, INTEGER_MIN, INTEGER_MAX])
def test_a_json_number_is_taken(value: int) -> None:
    assert read_json_whole("it", value) == value


def test_json_has_one_kind_of_numbers() -> None:
    assert repr(read_json_whole("it", 7.0)) == "7"


@pytest.mark.parametrize("value", ["7", True, 7.5, None, [7], INTEGER_MAX + 1, INTEGER_MIN - 1])
def test_what_json_does_not_write_as_a_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidField, match=r"^it must be a whole number"):
        read_json_whole("it", value)
