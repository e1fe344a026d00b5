"""How long a change still waits apart, by what the archive has of its entity."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.apart import PAUSES_MS
from oldhost_sync.store.ledger.fates import Refusals


@pytest.mark.parametrize(
    ("ms_ago", "left_ms"),
    [
        (0, PAUSES_MS[1]),
        (1_000, PAUSES_MS[1] - 1_000),
        (PAUSES_MS[1], 0),
        (PAUSES_MS[1] + 1, 0),
        (-1, 0),
        (-(10**9), 0),
    ],
    ids=["at once", "a second later", "when it is over", "later", "clock set back", "clock set far back"],
)
def test_a_change_waits_for_the_rest_of_its_pause_and_not_for_a_clock_that_was_set_back(
    ms_ago: int, left_ms: int
) -> None:
    refused = Refusals(nonces=[501, 502], change_ids={7: None}, ms_ago=ms_ago)
    assert refused.left_ms(7, PriorityClass.TXN) == left_ms
