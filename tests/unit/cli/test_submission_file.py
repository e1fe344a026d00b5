"""A file of changes is checked line by line, and each refusal names its line and its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oldhost_sync.cli.submission import check, check_one, read_json
from oldhost_sync.store.errors import InvalidChange

GOOD: dict[str, Any] = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "unit_status_changed",
    "payload": {"status": "Clean"},
}


def lines(*changes: object) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in changes)


def reason_of(line: object) -> str:
    (refusal,) = check("oldhost", lines(line)).refusals
    return refusal.reason


def test_valid_lines_are_kept_in_order_with_their_numbers() -> None:
    checked = check("oldhost", lines(GOOD, b"", GOOD | {"entity_id": "13"}))
    assert [(line.number, line.change.entity_id) for line in checked.lines] == [(1, "12B"), (3, "13")]
    assert checked.total == 2
    assert not checked.refusals


def test_a_key_is_made_of_the_content_and_the_line_so_that_a_repeated_run_is_harmless() -> None:
    first, again = (check("oldhost", lines(GOOD, GOOD)) for _ in range(2))
    keys = [line.change.idempotency_key for line in first.lines]
    assert keys == [line.change.idempotency_key for line in again.lines]
    assert len(set(keys)) == 2
    assert keys[0] != check("oldhost", lines(GOOD)).lines[0].change.idempotency_key


def test_a_byte_order_mark_at_the_beginning_is_no_part_of_the_first_line() -> None:
    assert not check("oldhost", b"\xef\xbb\xbf" + lines(GOOD)).refusals


def test_a_key_of_ones_own_is_used() -> None:
    assert check("oldhost", lines(GOOD | {"idempotency_key": "mine"})).lines[0].change.idempotency_key == "mine"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[1]", "must be a JSON object"),
        (b"[" * 100_000, "nests too deeply"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": ' + b"9" * 5000 + b"}", "beyond 64 bit"),
        (b'{"entity_type": "unit", "entity_type": "unit"}', "twice"),
        ({"entity_type": "unit"}, "lacks entity_id, event_type, payload"),
        (GOOD | {"class": "EMERGENCY"}, "unknown fields: class"),
        (GOOD | {"payload": [1]}, "payload must be a JSON object"),
        (GOOD | {"entity_type": "a b"}, "entity_type"),
        (GOOD | {"entity_id": "x" * 200}, "entity_id"),
        (GOOD | {"occurred_at": "yesterday"}, "occurred_at must be a time with a time zone"),
        (GOOD | {"not_before": "2026-05-01T12:00:00"}, "not_before must be a time with a time zone"),
        (GOOD | {"not_before": 12}, "not_before must be a time with a time zone"),
        (GOOD | {"idempotency_key": "ü"}, "idempotency_key"),
        (GOOD | {"idempotency_key": 7}, "idempotency_key"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(line: object, says: str) -> None:
    assert says in reason_of(line)


def test_bad_lines_are_reported_by_number_beside_the_good_ones() -> None:
    checked = check("oldhost", lines(GOOD, b"{", GOOD, {}))
    assert [refusal.line for refusal in checked.refusals] == [2, 4]
    assert [line.number for line in checked.lines] == [1, 3]
    assert checked.refusals[0].raw == b"{"


def test_two_changes_under_one_key_are_refused_and_the_same_change_twice_is_not() -> None:
    mine = GOOD | {"idempotency_key": "mine"}
    checked = check("oldhost", lines(mine, mine, mine | {"entity_id": "13"}))
    assert [line.number for line in checked.lines] == [1, 2]
    assert "line 1 has the same" in checked.refusals[0].reason


def test_a_line_that_is_refused_late_is_counted_once_and_in_its_place() -> None:
    checked = check("oldhost", lines(GOOD, GOOD | {"entity_id": "other"}, b"{"))
    checked.refuse(checked.lines[1], "its key was taken meanwhile")
    assert [line.number for line in checked.lines] == [1]
    assert [refusal.line for refusal in checked.refusals] == [2, 3]
    assert checked.total == 3


def test_one_change_by_itself_gets_a_key_when_it_has_none() -> None:
    assert check_one("oldhost", GOOD).change.idempotency_key
    with pytest.raises(InvalidChange, match="lacks payload"):
        check_one("oldhost", {name: value for name, value in GOOD.items() if name != "payload"})


def test_json_is_read_as_the_api_reads_it() -> None:
    assert read_json('{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidChange, match="character 2"):
        read_json("{x")
