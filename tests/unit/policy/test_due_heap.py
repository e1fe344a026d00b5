"""The due heap: the earliest first, one live entry per change."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oldhost_sync.policy.queue.due_heap import DueHeap


def test_nothing_is_due_in_an_empty_heap() -> None:
    heap = DueHeap()
    assert heap.pop_due(10**15) is None
    assert heap.next_due_at_ms() is None


def test_a_change_is_due_at_its_time_and_not_before() -> None:
    heap = DueHeap()
    heap.put(1, 100)
    assert heap.pop_due(99) is None
    assert heap.pop_due(100) == 1


def test_the_longest_due_comes_first() -> None:
    heap = DueHeap()
    heap.put(1, 300)
    heap.put(2, 100)
    heap.put(3, 200)
    assert [heap.pop_due(1000) for _ in range(4)] == [2, 3, 1, None]


def test_a_moved_change_is_due_at_its_new_time_only() -> None:
    heap = DueHeap()
    heap.put(1, 100)
    heap.put(1, 200)
    assert heap.pop_due(150) is None
    assert heap.next_due_at_ms() == 200
    assert len(heap) == 1


def test_a_removed_change_is_never_due() -> None:
    heap = DueHeap()
    heap.put(1, 100)
    heap.remove(1)
    assert heap.pop_due(1000) is None
    assert len(heap) == 0


def test_removing_what_is_not_there_does_nothing() -> None:
    DueHeap().remove(7)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("pr"), st.integers(1, 5), st.integers(0, 20))))
def test_the_heap_agrees_with_a_plain_dictionary(acts: list[tuple[str, int, int]]) -> None:
    heap, plain = DueHeap(), {}
    for act, change_id, due_at_ms in acts:
        if act == "p":
            heap.put(change_id, due_at_ms)
            plain[change_id] = due_at_ms
        else:
            heap.remove(change_id)
            plain.pop(change_id, None)
        assert len(heap) == len(plain)
        assert heap.next_due_at_ms() == min(plain.values(), default=None)
    popped = [heap.pop_due(100) for _ in range(len(plain))]
    assert popped == [one for _, one in sorted((due, one) for one, due in plain.items())]
