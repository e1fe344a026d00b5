"""A change that waits apart: its entity gets no turn for a while, all others go on."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import WAITING, ChangeRef, ChangeResult, PriorityClass, to_wire
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.actions import Send
from oldhost_sync.policy.machine.conditions import conditions
from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.rules.apart import PAUSES_MS, is_given_up, pause_ms
from oldhost_sync.policy.rules.operator_act import ActRecorded, OperatorAct
from oldhost_sync.policy.tuning import WriterPolicy

NOW = 1_700_000_000_000


def ref(change_id: int, unit: str, cls: PriorityClass = PriorityClass.TXN) -> ChangeRef:
    return ChangeRef(change_id, cls, "unit", unit, "event", NOW)


def opened(machine: Machine, now_ms: int, apart: list[list[int]]) -> list[list[int]]:
    """The changes that each send has after this session was opened."""
    machine.decide(now_ms)
    fates = [ChangeResult(change_id, WAITING) for change_id, _ in apart]
    machine.opening_ended(SessionOpened(2, "queue", 501, fates, apart=apart), now_ms)
    return sends(machine, now_ms)


def sends(machine: Machine, now_ms: int) -> list[list[int]]:
    return [list(action.change_ids) for action in machine.decide(now_ms) if isinstance(action, Send)]


def writer(*refs: ChangeRef) -> Machine:
    machine = Machine(WriterPolicy(), NOW)
    machine.enqueue(refs, NOW)
    machine.finish_loading(NOW)
    return machine


def test_the_others_go_first_and_nothing_of_its_entity_does() -> None:
    emergency = ref(4, "u2", PriorityClass.EMERGENCY)
    machine = writer(ref(1, "poison"), ref(2, "poison", PriorityClass.EMERGENCY), ref(3, "u1"), emergency)
    gone = [one for ids in opened(machine, NOW, [[1, 1]]) for one in ids]
    assert gone[0] == 4
    assert set(gone) <= {3, 4}


def test_it_is_tried_again_when_its_pause_is_over() -> None:
    machine, began = writer(ref(1, "poison")), NOW + 7
    assert opened(machine, began, [[1, 1]]) == []
    now_ms, over_ms = began, began + PAUSES_MS[0]
    while now_ms < over_ms:
        assert sends(machine, now_ms) == []
        now_ms = machine.wake_at_ms() or 0
    assert (now_ms, sends(machine, now_ms)) == (over_ms, [[1]])


@pytest.mark.parametrize(("tries", "named"), [(1, []), (2, [1]), (3, [1])])
def test_an_alert_names_it_from_the_second_try_on(tries: int, named: list[int]) -> None:
    machine = writer(ref(1, "poison"))
    machine.decide(NOW)
    fates = [ChangeResult(1, WAITING)]
    machine.opening_ended(SessionOpened(2, "queue", 501, fates, apart=[[1, tries]]), NOW)
    machine.decide(NOW)
    found = [*conditions(machine, NOW)]
    assert [(each.kind, each.change_id) for each in found] == [("goes-nowhere", each) for each in named]
    assert all("refused change 1" in each.why for each in found)


@pytest.mark.parametrize("tries", range(1, 20))
def test_tries_take_less_than_a_tenth_of_oldhosts_time_in_the_long_run(tries: int) -> None:
    settle_ms = 11_000
    if tries > 1:
        assert settle_ms / (settle_ms + pause_ms(tries)) < 0.16
    if tries > 2:
        assert settle_ms / (settle_ms + pause_ms(tries)) < 0.1


def test_only_what_others_passed_is_given_up_soon() -> None:
    assert not is_given_up(2, 1)
    assert is_given_up(3, 2)
    assert not is_given_up(7, 0)
    assert is_given_up(8, 0)


def decided(machine: Machine, action: str, change: ChangeRef) -> None:
    act = OperatorAct("oldhost", action, "olga", "why not", change.change_id)
    entity = [change.entity_type, change.entity_id]
    recorded = ActRecorded(to_wire(change) if action == "retry" else None, entity, "done", apart=True)
    assert operators.follow(machine, act, recorded, NOW) == "done"


def test_an_operators_retry_ends_the_pause() -> None:
    poison = ref(1, "poison")
    machine = writer(poison)
    assert opened(machine, NOW, [[1, 1]]) == []
    decided(machine, "retry", poison)
    assert sends(machine, NOW) == [[1]]


def test_an_operators_discard_lets_its_entitys_others_go_on() -> None:
    poison = ref(1, "poison")
    machine = writer(poison, ref(2, "poison"))
    assert opened(machine, NOW, [[1, 1]]) == []
    decided(machine, "discard", poison)
    assert sends(machine, NOW) == [[2]]


@pytest.mark.parametrize("action", ["retry", "discard"])
def test_a_decision_closes_the_alert_and_leaves_the_count_of_dead_letters(action: str) -> None:
    poison = ref(1, "poison")
    machine = writer(poison)
    machine.outcomes.dead_letters = 3
    opened(machine, NOW, [[1, 2]])
    assert [each.kind for each in conditions(machine, NOW)] == ["goes-nowhere"]
    decided(machine, action, poison)
    assert [*conditions(machine, NOW)] == []
    assert machine.outcomes.dead_letters == 3
