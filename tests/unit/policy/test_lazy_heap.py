"""The lazily cleaned heap, and the debounced keys that wait in it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oldhost_sync.policy.queue.lanes import STALE_MAX, DebouncedKeys, LazyHeap


def debounced(*keys: tuple[int, int], early_ms: int = 0) -> DebouncedKeys:
    waiting = DebouncedKeys(early_ms)
    for change_id, due_at_ms in keys:
        waiting.put(change_id, due_at_ms, changed_at_ms=0)
    return waiting


def test_nothing_is_due_where_nothing_waits() -> None:
    assert debounced().pop_due(10**15) is None
    assert debounced().next_due_at_ms() is None


def test_a_change_is_due_at_its_time_and_not_before() -> None:
    waiting = debounced((1, 100))
    assert waiting.pop_due(99) is None
    assert waiting.pop_due(100) == 1


def test_the_longest_due_comes_first() -> None:
    waiting = debounced((1, 300), (2, 100), (3, 200))
    assert [waiting.pop_due(1000) for _ in range(4)] == [2, 3, 1, None]


def test_a_moved_change_is_due_at_its_new_time_only() -> None:
    waiting = debounced((1, 100), (1, 200))
    assert waiting.pop_due(150) is None
    assert waiting.next_due_at_ms() == 200
    assert len(waiting) == 1


def test_a_removed_change_is_never_due() -> None:
    waiting = debounced((1, 100))
    waiting.remove(1)
    assert waiting.pop_due(1000) is None
    assert len(waiting) == 0


def test_a_change_that_fell_due_is_not_quiet_as_well() -> None:
    waiting = debounced((1, 100), early_ms=50)
    assert waiting.pop_due(100) == 1
    assert waiting.quiet(1000, at_most=5) == []


def test_removing_what_is_not_there_does_nothing() -> None:
    heap = LazyHeap[int, int]()
    heap.remove(7)
    assert heap.first() is None


def test_a_key_that_moves_again_and_again_leaves_a_bounded_heap() -> None:
    heap = LazyHeap[int, str]()
    for turn in range(10_000):
        heap.put("front", 0)
        heap.put("moves", 10_000 - turn)
    assert len(heap._heap) <= STALE_MAX + 2 * len(heap.priorities)
    assert heap.first() == (0, "front")


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("pr"), st.integers(1, 5), st.integers(0, 20))))
def test_the_heap_agrees_with_a_plain_dictionary(acts: list[tuple[str, int, int]]) -> None:
    heap, plain = LazyHeap[int, int](), dict[int, int]()
    for act, key, priority in acts:
        if act == "p":
            heap.put(key, priority)
            plain[key] = priority
        else:
            heap.remove(key)
            plain.pop(key, None)
        assert heap.priorities == plain
        assert heap.first() == min(((priority, key) for key, priority in plain.items()), default=None)
