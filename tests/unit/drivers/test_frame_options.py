"""What a host that speaks frames may claim in its options."""

from __future__ import annotations

from typing import Any

import pytest

from oldhost_sync.driver_choice import driver_named
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats, Resets
from oldhost_sync.drivers.contract import InvalidOptions
from oldhost_sync.drivers.frame.driver import make_driver


def test_without_options_nothing_is_claimed() -> None:
    driver = driver_named("frame", {})
    assert driver.capabilities == Capabilities()
    assert driver.schemes == ("tcp", "tls")


def test_each_claim_is_an_option() -> None:
    options = {
        "expected": "applied",
        "outcome": "by_id",
        "repeated": "last_answer",
        "rejection_uses": "no",
        "resets": "day",
        "gapless": False,
        "modulus": 96,
        "lowest": 32,
    }
    assert make_driver(options).capabilities == Capabilities(
        expected=Expects.APPLIED,
        outcome=AskedOutcomes.BY_ID,
        repeated=Repeats.LAST_ANSWER,
        rejection_uses=RejectionUses.NO,
        resets=Resets.DAY,
        gapless=False,
        modulus=96,
        lowest=32,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expected", "always"),
        ("outcome", ["last"]),
        ("repeated", None),
        ("gapless", "no"),
        ("modulus", True),
        ("modulus", 7),
        ("lowest", -1),
        ("lowest", 1.0),
        ("speed", 9),
    ],
)
def test_a_mistake_names_its_key_and_not_its_value(key: str, value: Any) -> None:
    with pytest.raises(InvalidOptions) as caught:
        driver_named("frame", {key: value})
    assert [mistake for mistake, _ in caught.value.mistakes] == [(key,)]
