"""What an outcome that a host tells says about an operation in doubt."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Resets
from oldhost_sync.drivers.events import OutcomeTold, ToldFate
from oldhost_sync.oldhost.inquiry import Inquiry
from oldhost_sync.oldhost.ledger import InDoubt

APPLIED, UNKNOWN, NOT_TAKEN = ToldFate.APPLIED, ToldFate.UNKNOWN, ToldFate.NOT_TAKEN
BY_ID, ONCE = AskedOutcomes.BY_ID, InDoubt(502, 7, 1)
RETRIED = InDoubt(502, 7, 1, tried_before=True)


@pytest.mark.parametrize(
    ("row", "number", "more", "means"),
    [
        (ONCE, 502, {}, APPLIED),
        (ONCE, 3, {"resets": Resets.SESSION}, APPLIED),
        (RETRIED, 502, {}, APPLIED),
        (RETRIED, 501, {}, NOT_TAKEN),
        (RETRIED, 503, {}, UNKNOWN),
        (RETRIED, None, {}, UNKNOWN),
        (RETRIED, 502, {"resets": Resets.SESSION}, UNKNOWN),
        (RETRIED, 502, {"modulus": 96}, UNKNOWN),
    ],
)
def test_a_keys_outcome_may_be_that_of_an_earlier_try(
    row: InDoubt, number: int | None, more: dict[str, Any], means: ToldFate
) -> None:
    """Where numbers come again, they do not tell the two apart."""
    nothing = cast("Any", None)
    can = Capabilities(outcome=BY_ID, **more)
    inquiry = Inquiry(
        ledger=nothing,
        connect=nothing,
        condition=nothing,
        clock=nothing,
        limits=nothing,
        heartbeat=nothing,
        capabilities=can,
    )
    assert inquiry._fate(row, OutcomeTold(APPLIED, number)) is means
    assert inquiry._fate(row, OutcomeTold(NOT_TAKEN, None)) is NOT_TAKEN
