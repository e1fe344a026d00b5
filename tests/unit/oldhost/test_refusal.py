from __future__ import annotations

from typing import get_args

import pytest

from oldhost_sync.drivers.capabilities import OLDHOST, AskedOutcomes, Capabilities, Repeats
from oldhost_sync.drivers.events import (
    Ambiguous,
    Answer,
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    Gap,
    Malformed,
    Rejected,
    Replay,
    Unlisted,
)
from oldhost_sync.oldhost.ledger import Reserved, consumed
from oldhost_sync.oldhost.refusals import Refusal, Unwritten, refusal, why_ended, why_halted
from oldhost_sync.policy.changes import PriorityClass

FIRST = Reserved(501, 1, "key", b"{}", "unit", "u1", "checked_in", PriorityClass.TXN)
AGAIN = Reserved(501, 1, "key", b"{}", "unit", "u1", "checked_in", PriorityClass.TXN, sends=1)

NOT_TAKEN = Refusal(uncounts=True)
TABLE = [
    (FIRST, Busy(1.0), NOT_TAKEN),
    (FIRST, ConnectionInUse(), NOT_TAKEN),
    (FIRST, Gap(500), NOT_TAKEN),
    (FIRST, Unwritten("gone"), NOT_TAKEN),
    (FIRST, Banned(640.0), Refusal(uncounts=True, bans=True)),
    (FIRST, Replay(502, 900.0), Refusal(uncounts=True, bans=True, halts=True)),
    (AGAIN, Replay(502, 900.0), Refusal(uncounts=True, bans=True)),
    (FIRST, Unlisted("status 500"), Refusal(uncounts=False)),
    (FIRST, Ambiguous("silence"), Refusal(uncounts=False)),
]


@pytest.mark.parametrize(("operation", "answer", "follows"), TABLE, ids=lambda one: type(one).__name__)
def test_what_follows_from_an_answer_is_as_the_protocol_says(
    operation: Reserved, answer: Answer, follows: Refusal
) -> None:
    assert refusal(operation, answer, OLDHOST) == follows
    assert why_ended(operation, answer)


def test_each_answer_either_ends_an_operation_or_has_its_row() -> None:
    assert {type(answer) for _, answer, _ in TABLE} | {Applied, Rejected, Malformed} == {*get_args(Answer), Unwritten}


def test_an_answer_after_which_the_session_goes_on_is_no_refusal() -> None:
    assert consumed(Applied(502))
    with pytest.raises(KeyError):
        refusal(FIRST, Applied(502), OLDHOST)


def test_a_gap_at_a_host_that_can_not_be_asked_halts() -> None:
    """Nothing else would show that it went back, and each session would begin with the same gap."""
    assert refusal(FIRST, Gap(499), Capabilities(outcome=AskedOutcomes.BY_ID)) == Refusal(uncounts=True, halts=True)
    assert "expects nonce 499, and our next one is 501" in why_halted(FIRST, Gap(499))


def test_only_a_host_that_punishes_a_replay_bans_us_for_it() -> None:
    refusing = Capabilities(repeated=Repeats.REFUSED)
    assert refusal(FIRST, Replay(502, None), refusing) == Refusal(uncounts=True, halts=True)
    assert refusal(AGAIN, Replay(502, None), refusing) == Refusal(uncounts=True)


@pytest.mark.parametrize("expected", [None, 502])
def test_a_first_send_that_is_called_a_replay_may_have_been_delivered_twice(expected: int | None) -> None:
    said = why_halted(FIRST, Replay(expected, None))
    assert "a proxy delivered change 1 twice" in said
    assert "`resolve adopt` counts it as applied" in said


def test_where_later_nonces_are_used_somebody_else_wrote() -> None:
    """Then `resolve adopt` does not count the operation as applied."""
    said = why_halted(FIRST, Replay(503, None))
    assert "another client wrote to OldHost, up to nonce 502" in said
    assert "proxy" not in said
    assert "as applied" not in said
