"""Which states may be sent again: never one that would undo what came after it."""

from __future__ import annotations

from oldhost_sync.policy.rules.resync import states_to_send

CLASSES = {"status": "LWW", "rate": "LWW", "checked_out": "TXN", "locked_out": "EMERGENCY"}
State = dict[str, dict[str, object]]
CLEAN: dict[str, object] = {"status": "Clean"}
PRICE: dict[str, object] = {"rate": 90}


def test_the_states_of_lww_keys_are_sent_in_the_order_in_which_they_were_applied() -> None:
    assert states_to_send({"status": CLEAN, "rate": PRICE}, {"status": 7, "rate": 5}, CLASSES) == ["rate", "status"]


def test_what_was_sent_in_order_once_is_not_sent_again() -> None:
    assert states_to_send({"checked_out": {"guest": 1}}, {"checked_out": 3}, CLASSES) == []


def test_a_status_does_not_undo_a_check_out_that_came_after_it() -> None:
    state: State = {"status": CLEAN, "checked_out": {"guest": 1}}
    assert states_to_send(state, {"status": 3, "checked_out": 4}, CLASSES) == []
    assert states_to_send(state, {"status": 5, "checked_out": 4}, CLASSES) == ["status"]


def test_a_state_does_not_undo_a_newer_one_that_has_a_field_of_it() -> None:
    state: State = {"status": CLEAN, "rate": {"rate": 90, "status": "Dirty"}}
    assert states_to_send(state, {"status": 3, "rate": 4}, CLASSES) == ["rate"]


def test_a_state_that_oldhost_never_had_is_left_to_whoever_decides_about_it() -> None:
    assert states_to_send({"status": CLEAN}, {}, CLASSES) == []
