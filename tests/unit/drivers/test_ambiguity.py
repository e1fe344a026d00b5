"""The table of what is asked and done after an ambiguous end: each kind of host has one row."""

from __future__ import annotations

import itertools

import pytest

from oldhost_sync.drivers.ambiguity import (
    LAST_ANSWER,
    LAST_OUTCOME,
    NOTHING,
    OUTCOME,
    PROVES_APPLIED,
    PROVES_USED,
    REFUSES,
    USED_AND_OUTCOME,
    RecoveryPlan,
    Resends,
    plan,
)
from oldhost_sync.drivers.capabilities import OLDHOST, AskedOutcomes, Capabilities, Expects, Repeats


@pytest.mark.parametrize(
    ("can", "row"),
    [
        (Capabilities(), NOTHING),
        (OLDHOST, PROVES_USED),
        (Capabilities(expected=Expects.APPLIED), PROVES_APPLIED),
        (Capabilities(expected=Expects.USED, outcome=AskedOutcomes.LAST), USED_AND_OUTCOME),
        (Capabilities(expected=Expects.USED, outcome=AskedOutcomes.BY_ID), USED_AND_OUTCOME),
        (Capabilities(outcome=AskedOutcomes.BY_NUMBER), OUTCOME),
        (Capabilities(outcome=AskedOutcomes.BY_ID, repeated=Repeats.LAST_ANSWER), OUTCOME),
        (Capabilities(outcome=AskedOutcomes.LAST, repeated=Repeats.REFUSED), LAST_OUTCOME),
        (Capabilities(repeated=Repeats.LAST_ANSWER), LAST_ANSWER),
        (Capabilities(repeated=Repeats.REFUSED), REFUSES),
        (Capabilities(repeated=Repeats.PUNISHED), NOTHING),
    ],
)
def test_each_kind_of_host_has_its_row(can: Capabilities, row: RecoveryPlan) -> None:
    assert plan(can) is row


def test_nothing_is_sent_again_on_a_guess_unless_the_host_is_safe_against_it() -> None:
    for expected, outcome, repeated in itertools.product(Expects, AskedOutcomes, Repeats):
        row = plan(Capabilities(expected=expected, outcome=outcome, repeated=repeated))
        if row.resends is not Resends.NEVER:
            assert repeated in {Repeats.REFUSED, Repeats.LAST_ANSWER}


def test_every_host_tells_something_or_has_at_most_one_operation_in_doubt() -> None:
    for expected, outcome, repeated in itertools.product(Expects, AskedOutcomes, Repeats):
        row = plan(Capabilities(expected=expected, outcome=outcome, repeated=repeated))
        assert row.asks or row.one_in_doubt
