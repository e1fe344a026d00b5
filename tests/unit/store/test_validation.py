"""What may be recorded, and what is refused before the database hears of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import InvalidChange
from oldhost_sync.store.intake.validation import Acceptable, accept, canonical_json


def accepted(**changes: Any) -> Acceptable:
    values: dict[str, Any] = {
        "host": "oldhost",
        "entity_type": "unit",
        "entity_id": "101",
        "event_type": "unit_status_changed",
        "payload": {"status": "Clean"},
        "idempotency_key": "k",
        "occurred_at": None,
        "not_before": None,
        "source": "test",
    }
    return accept(**(values | changes))


def test_a_plain_change_is_accepted_with_its_columns() -> None:
    change = accepted()
    assert change.payload == '{"status":"Clean"}'
    assert change.columns == (("status", "Clean"),)


def test_a_missing_key_is_made_and_differs_each_time() -> None:
    first, second = accepted(idempotency_key=None), accepted(idempotency_key=None)
    assert first.idempotency_key != second.idempotency_key
    assert first.request_hash == second.request_hash


def test_the_order_of_fields_and_the_zone_of_times_do_not_make_another_change() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    there = noon.astimezone(timezone(timedelta(hours=5)))
    one = accepted(payload={"a": 1, "b": {"c": 2, "d": 3}}, occurred_at=noon)
    other = accepted(payload={"b": {"d": 3, "c": 2}, "a": 1}, occurred_at=there)
    assert one.request_hash == other.request_hash
    assert one.occurred_at == other.occurred_at == noon


@pytest.mark.parametrize(
    "change",
    [
        {"host": "other"},
        {"entity_type": "door"},
        {"entity_id": "102"},
        {"event_type": "rate_changed"},
        {"payload": {"status": "Dirty"}},
        {"occurred_at": datetime(2026, 5, 1, tzinfo=UTC)},
        {"not_before": datetime(2026, 5, 1, tzinfo=UTC)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_the_body_makes_another_change(change: dict[str, Any]) -> None:
    assert accepted(**change).request_hash != accepted().request_hash


def test_key_and_source_are_no_part_of_the_body() -> None:
    assert accepted(idempotency_key="other", source="elsewhere").request_hash == accepted().request_hash


NESTED: dict[str, Any] = {}
_inner = NESTED
for _ in range(limits.PAYLOAD_DEPTH_MAX):
    _inner["x"] = {}
    _inner = _inner["x"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"entity_type": ""}, "entity_type"),
        ({"entity_type": "a b"}, "entity_type"),
        ({"event_type": "x" * 65}, "event_type"),
        ({"event_type": 'a"b'}, "event_type"),
        ({"host": "häuser"}, "host"),
        ({"entity_id": ""}, "entity_id"),
        ({"entity_id": 7}, "entity_id"),
        ({"entity_id": "x" * 129}, "entity_id"),
        ({"entity_id": "a\x00b"}, "entity_id"),
        ({"entity_id": "a\nb"}, "entity_id"),
        ({"entity_id": "\ud800"}, "entity_id"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "schlüssel"}, "ASCII"),
        ({"payload": None}, "payload"),
        ({"payload": ["no", "object"]}, "payload"),
        ({"payload": {"x": float("nan")}}, "payload"),
        ({"payload": {"x": float("inf")}}, "payload"),
        ({"payload": {"x": object()}}, "payload"),
        ({"payload": {1: "x"}}, "payload"),
        ({"payload": {"x": "\udfff"}}, "Unicode"),
        ({"payload": {"\udfff": 1}}, "payload"),
        ({"payload": {"x": 10**5000}}, "payload"),
        ({"payload": {"x": "y" * limits.PAYLOAD_BYTES_MAX}}, "bytes"),
        ({"payload": NESTED}, "nests"),
        ({"payload": {"status": "x" * 65}}, "status"),
        ({"event_type": "unit_details_changed", "payload": {"name": "x" * 256}}, "name"),
        ({"occurred_at": datetime(2026, 5, 1)}, "zone"),  # noqa: DTZ001
        ({"occurred_at": datetime(1066, 1, 1, tzinfo=UTC)}, "occurred_at"),
        ({"occurred_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}, "in a year from"),
        ({"occurred_at": "2026-05-01T12:00:00"}, "occurred_at"),
        ({"not_before": datetime(2126, 1, 1, tzinfo=UTC)}, "days ahead"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_outside_the_limits_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidChange, match=says):
        accepted(**change)


def test_a_payload_of_thousands_of_levels_is_refused_and_not_followed() -> None:
    payload: dict[str, Any] = {}
    for _ in range(100_000):
        payload = {"x": payload}
    with pytest.raises(InvalidChange, match="nests"):
        accepted(payload=payload)


def test_a_unit_field_of_another_kind_stays_in_the_state_alone() -> None:
    assert accepted(payload={"status": 7}).columns == ()
    assert accepted(event_type="door_code_changed", payload={"status": "x"}).columns == ()
    assert accepted(entity_type="door").columns == ()


def test_a_nulled_detail_clears_the_column() -> None:
    change = accepted(event_type="unit_details_changed", payload={"name": "A", "property_id": None})
    assert change.columns == (("name", "A"), ("property_id", None))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_json_object_has_one_text_in_ascii_or_is_refused(payload: dict[str, Any]) -> None:
    try:
        text = canonical_json("payload", payload)
    except InvalidChange:
        return
    assert text.isascii()
    assert text == canonical_json("payload", dict(reversed(payload.items())))
