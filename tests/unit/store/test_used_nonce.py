"""What a used nonce proves: a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oldhost_sync.policy.changes import Outcome, PriorityClass
from oldhost_sync.store.ledger.fates import used


def row(**more: Any) -> Any:
    change = {
        "change_id": 1,
        "entity_type": "unit",
        "entity_id": "u1",
        "event_type": "x",
        "nonce": 501,
        "mapping": None,
    }
    said = {"sends": 1, "said_rejects": False, "said_send": None, "answer": None}
    return SimpleNamespace(**change, priority_class=PriorityClass.TXN, **(said | more))


@pytest.mark.parametrize(
    ("more", "shared", "status", "outcome", "unproven"),
    [
        ({}, False, "APPLIED", Outcome.APPLIED, True),
        ({}, True, "UNSURE", Outcome.DEAD, True),
        ({"said_rejects": True, "said_send": 1}, False, "FAILED", Outcome.DEAD, False),
        ({"said_rejects": False, "said_send": 1}, False, "UNSURE", Outcome.DEAD, True),
        ({"said_rejects": False, "said_send": 1}, True, "UNSURE", Outcome.DEAD, True),
        ({"said_rejects": False, "said_send": 1, "sends": 2}, False, "APPLIED", Outcome.APPLIED, True),
        ({"said_rejects": True, "said_send": 0}, False, "APPLIED", Outcome.APPLIED, True),
    ],
)
def test_a_used_nonce_proves_no_more_than_the_answer_to_the_last_send(
    more: dict[str, Any], shared: bool, status: str, outcome: Outcome, unproven: bool
) -> None:
    found = used(row(**more), shared=shared)
    assert (found.status, found.ending.outcome, found.ending.unproven) == (status, outcome, unproven)
