"""How a host counts what the ledger counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers.events import Applied, Banned, Expected, Gap, OutcomeTold, Replay, ToldFate
from oldhost_sync.oldhost.numbers import IDENTITY, Numbering

WRAPPING = Numbering(base=0, modulus=96, lowest=32)
ANEW = Numbering(base=500)


@pytest.mark.parametrize(
    ("numbering", "nonce", "number"),
    [(IDENTITY, 507, 507), (ANEW, 507, 7), (WRAPPING, 95, 95), (WRAPPING, 96, 32), (WRAPPING, 160, 32)],
)
def test_a_number_is_the_nonce_less_its_base_and_wraps(numbering: Numbering, nonce: int, number: int) -> None:
    assert numbering.number(nonce) == number
    assert numbering.nonce(number, near=nonce) == nonce


@given(
    base=st.integers(-(10**6), 10**6),
    lowest=st.integers(0, 100),
    numbers=st.integers(8, 1000),
    nonce=st.integers(0, 10**9),
    ahead=st.integers(-3, 3),
)
def test_a_number_near_the_ledgers_is_always_understood(
    base: int, lowest: int, numbers: int, nonce: int, ahead: int
) -> None:
    numbering = Numbering(base, lowest + numbers, lowest)
    assert lowest <= numbering.number(nonce) < lowest + numbers
    assert numbering.nonce(numbering.number(nonce + ahead), near=nonce) == nonce + ahead


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (Expected(8), Expected(508)),
        (Gap(8), Gap(508)),
        (Replay(8, 1.0), Replay(508, 1.0)),
        (Replay(None, 1.0), Replay(None, 1.0)),
        (Applied(8), Applied(508)),
        (OutcomeTold(ToldFate.APPLIED, 7), OutcomeTold(ToldFate.APPLIED, 507)),
        (Banned(1.0), Banned(1.0)),
    ],
)
def test_what_a_host_says_is_told_as_the_ledger_counts(said: object, meant: object) -> None:
    assert ANEW.told(said, near=507) == meant
