"""A batch before the database is asked: what belongs together, and what is refused together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.store.errors import EntityRefused, IdempotencyConflict, InvalidChange
from oldhost_sync.store.intake.batch_recorder import ChangeBatch, Item, Result, Unacceptable, decide
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.validation import Acceptable, accept

BAD = InvalidChange("payload must be a JSON object")


def change(entity_id: str, key: str, **changes: Any) -> Acceptable:
    values: dict[str, Any] = {
        "host": "oldhost", "entity_type": "unit", "event_type": "checked_in", "payload": {},
        "occurred_at": None, "not_before": None, "source": "test",
    }  # fmt: skip
    return accept(entity_id=entity_id, idempotency_key=key, **(values | changes))


def recorded(item: Acceptable, change_id: int) -> RecordedChange:
    return RecordedChange(change_id, None, item.idempotency_key, None, datetime(2026, 5, 1, tzinfo=UTC), "PENDING_SYNC")


def play(items: list[Item], known: dict[str, Result] | None = None) -> list[Result]:
    """Record what is decided to be new, under ids that are counted."""
    batch = ChangeBatch(items)
    found: dict[int, Result] = {}
    for group in batch.groups:
        decision = decide(group, lambda item: (known or {}).get(item.idempotency_key))
        found |= decision.results
        found |= {index: recorded(item, index) for index, item in decision.new}
    return batch.results(found)


def shown(results: list[Result]) -> list[int | str | None]:
    return [result.change_id if isinstance(result, RecordedChange) else type(result).__name__ for result in results]


def test_each_entitys_items_stay_in_their_order() -> None:
    batch = ChangeBatch([change("a", "1"), change("b", "2"), change("a", "3"), change("a", "4", entity_type="room")])
    places = {group.entity: [index for index, _ in group.items] for group in batch.groups}
    assert places == {("unit", "a"): [0, 2], ("unit", "b"): [1], ("room", "a"): [3]}


def test_one_bad_item_keeps_its_whole_entity_out_and_no_other() -> None:
    results = play([change("a", "1"), change("b", "2"), Unacceptable(BAD, ("unit", "a")), change("a", "4")])
    assert shown(results) == ["EntityRefused", 1, "InvalidChange", "EntityRefused"]
    assert [result.because_of for result in results if isinstance(result, EntityRefused)] == [2, 2]


def test_an_item_of_an_unreadable_entity_is_refused_alone() -> None:
    assert shown(play([Unacceptable(BAD), change("a", "1")])) == ["InvalidChange", 1]


def test_a_known_key_keeps_its_first_answer_also_where_its_entity_is_refused() -> None:
    first = change("a", "1")
    results = play([first, Unacceptable(BAD, ("unit", "a")), change("a", "3")], {"1": recorded(first, 77)})
    assert shown(results) == [77, "InvalidChange", "EntityRefused"]


def test_a_key_that_belongs_to_another_change_keeps_its_entity_out() -> None:
    results = play([change("a", "1"), change("a", "2")], {"2": IdempotencyConflict("taken")})
    assert shown(results) == ["EntityRefused", "IdempotencyConflict"]


def test_the_same_change_twice_under_one_key_is_one_change_with_one_answer() -> None:
    results = play([change("a", "1"), change("a", "1"), change("a", "2")])
    assert shown(results) == [0, 0, 2]
    assert [result.duplicate for result in results if isinstance(result, RecordedChange)] == [False, True, False]


def test_two_changes_under_one_key_the_later_one_is_refused_with_its_entity() -> None:
    results = play([change("a", "1"), change("b", "1"), change("b", "2"), change("a", "3")])
    assert shown(results) == [0, "IdempotencyConflict", "EntityRefused", 3]
    assert "that of item 0" in str(results[1])


def test_a_repetition_of_a_refused_item_is_refused_as_it_is() -> None:
    assert shown(play([change("a", "1"), change("a", "1"), Unacceptable(BAD, ("unit", "a"))])) == [
        "EntityRefused", "EntityRefused", "InvalidChange",
    ]  # fmt: skip


ITEMS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("123456"), st.booleans(), st.sampled_from([0, 1])), max_size=12
)


@given(ITEMS)
def test_every_item_has_one_result_and_each_entity_is_recorded_whole_or_not_at_all(
    wanted: list[tuple[str, str, bool, int]],
) -> None:
    items = [
        Unacceptable(BAD, ("unit", entity)) if is_bad else change(entity, key, payload={"n": n})
        for entity, key, is_bad, n in wanted
    ]
    results = play(list(items))
    assert len(results) == len(items)
    for entity in "abc":
        fates = {
            isinstance(result, RecordedChange) for (of, *_), result in zip(wanted, results, strict=True) if of == entity
        }
        assert len(fates) <= 1
