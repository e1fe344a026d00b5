"""What comes over Temporal's boundary, made safe: nothing that a signal can carry raises, and what
gets in can be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from workflows.intake import read_batch, read_change, read_policy, read_release, update_key
from workflows.messages import (
    AT_MS_MAX,
    CHANGE_ID_MAX,
    EnqueueBatch,
    Outstanding,
    Recorded,
    WriterPolicy,
    from_wire,
    to_wire,
    why_unprintable,
)

REF: list[Any] = [7, "TXN", "unit", "u1", "checked_in", 1_780_000_000_000, ""]
odd_values = st.sampled_from(
    [
        "\ud800",
        "x\udfff",
        "\x00",
        "\x1b[2J",
        "🏠",
        "",
        "x" * 129,
        0,
        -1,
        2**63,
        10**400,
        float("nan"),
        float("inf"),
        True,
    ]
)
json_values = st.recursive(
    odd_values | st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(odd_values.map(str) | st.text(), inner, max_size=6),
)


@pytest.fixture(autouse=True, scope="module")
def converter() -> Iterator[None]:
    """The workflow's own is to be had inside of one only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "payload_converter", lambda: DataConverter.default.payload_converter)
        yield


def raw(value: Any) -> RawValue:
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode()))


def with_part(place: int, value: Any) -> list[Any]:
    return [*REF[:place], value, *REF[place + 1 :]]


@given(
    change_id=st.integers(1, CHANGE_ID_MAX),
    priority_class=st.sampled_from(list(PriorityClass)),
    entity_id=st.text(min_size=1, max_size=128).filter(str.isprintable),
    accepted_at_ms=st.integers(0, AT_MS_MAX),
    property_id=st.just("") | st.text(min_size=1, max_size=128).filter(str.isprintable),
)
def test_whatever_recording_gives_out_comes_back(
    change_id: int, priority_class: PriorityClass, entity_id: str, accepted_at_ms: int, property_id: str
) -> None:
    ref = ChangeRef(change_id, priority_class, "unit", entity_id, "checked_in", accepted_at_ms, property_id)
    assert from_wire(json.loads(json.dumps(to_wire(ref)))) == ref


@pytest.mark.parametrize("place", [2, 3, 4], ids=["entity type", "entity id", "event type"])
@pytest.mark.parametrize(
    "value", ["\ud800", "x\udfff", "\x00", "\x1b[2J", "a\nb", "", "x" * 129, 7, None, [[]], {}], ids=ascii
)
def test_a_ref_whose_names_recording_would_have_refused_is_none(place: int, value: Any) -> None:
    with pytest.raises(ValueError, match="ref"):
        from_wire(with_part(place, value))


@pytest.mark.parametrize("value", ["🏠", "two words", "x" * 65])
def test_types_are_names(value: str) -> None:
    for place in (2, 4):
        with pytest.raises(ValueError, match="names"):
            from_wire(with_part(place, value))
    assert from_wire(with_part(3, value)).entity_id == value


@pytest.mark.parametrize("place", [0, 5], ids=["change id", "accepted at"])
@pytest.mark.parametrize("value", [-1, 2**63, 10**400, 1.5, float("nan"), float("inf"), True, "7", None, []], ids=str)
def test_a_ref_whose_numbers_no_column_holds_is_none(place: int, value: Any) -> None:
    with pytest.raises(ValueError, match="numbers"):
        from_wire(with_part(place, value))


@pytest.mark.slow
@given(items=st.lists(st.builds(with_part, st.integers(0, 6), json_values) | json_values, max_size=5))
def test_no_batch_of_refs_raises_and_what_is_taken_can_be_kept(items: list[Any]) -> None:
    refs, _, unreadable = read_batch(raw({"refs": items}))
    assert len(refs) + unreadable == len(items)
    for ref in refs:
        assert f"{ref.entity_type}{ref.entity_id}{ref.event_type}".encode()
        assert 0 < ref.change_id <= CHANGE_ID_MAX


def of(*properties: str) -> list[ChangeRef]:
    """Changes of units of these properties."""
    return [
        ChangeRef(number, PriorityClass.TXN, "unit", f"u{number}", "checked_in", 1, property_id)
        for number, property_id in enumerate(properties, 1)
    ]


def test_answers_carry_properties_like_signals_do() -> None:
    batch = EnqueueBatch.of(of("a", ""))
    assert read_batch(raw(vars(batch))) == (of("a", ""), [], 0)
    assert list(Outstanding(batch.refs).changes()) == of("a", "")
    assert Recorded(ref=batch.refs[0]).changes() == of("a")
    assert Recorded(refused="no change").changes() == []


@pytest.mark.parametrize("property_id", [None, 7, [], "x" * 129, "\x00"], ids=ascii)
def test_what_can_be_no_property_is_none_and_keeps_no_change_out(property_id: Any) -> None:
    assert from_wire(with_part(6, property_id)).property_id == ""


@given(value=json_values)
def test_no_change_raises(value: Any) -> None:
    read_change(raw(value))


@pytest.mark.parametrize("value", [10**30, 10**12, float("inf"), float("nan"), None, -1], ids=str)
@pytest.mark.parametrize("name", sorted(vars(WriterPolicy())))
def test_a_policy_with_a_figure_that_no_timer_takes_is_none(name: str, value: Any) -> None:
    assert read_policy(raw(vars(WriterPolicy()) | {name: value})) is None
    assert read_policy(raw(vars(WriterPolicy()) | {name: 86_400_000})) is not None


def test_what_cannot_be_printed_is_named_in_words_that_can() -> None:
    assert why_unprintable("Zoë 🏠") == ""
    assert why_unprintable("a\ud800") == "U+D800 in it is half a character (a lone surrogate)"
    assert why_unprintable("a\x00b") == "U+0000 in it is a control character"
    assert why_unprintable("two\nlines") == "U+000A in it is a control character"
    assert why_unprintable("two\n\tlines", lines=True) == ""
    assert why_unprintable("two\nlines\x1b", lines=True) == "U+001B in it is a control character"


@pytest.mark.parametrize("value", ["6", 6.0, True, None, [6], {"release": 6}])
def test_a_release_is_a_whole_number(value: object) -> None:
    assert read_release(raw(value)) is None
    assert read_release(raw(6)) == 6


def test_an_update_that_is_repeated_within_another_trace_is_the_same_change() -> None:
    change = {"entity_type": "unit", "entity_id": "u1", "event_type": "checked_in", "payload": {}}
    keys = {update_key("update-1", change | more) for more in ({}, {"traceparent": "one"}, {"traceparent": "2"})}
    assert len(keys) == 1
    assert update_key("update-1", change | {"entity_id": "u2"}) not in keys
