"""A token is known by its hash alone."""

from __future__ import annotations

import hashlib

import pytest

from oldhost_sync.api.auth import Caller, Tokens
from oldhost_sync.settings import ApiToken, Role

TOKENS = Tokens([ApiToken(name, Role.APP, hashlib.sha256(name.encode()).hexdigest()) for name in ("first", "last")])


@pytest.mark.parametrize("name", ["first", "last"])
def test_a_known_token_is_found_wherever_it_stands(name: str) -> None:
    assert TOKENS.identify(f"Bearer {name}".encode()) == Caller(name, Role.APP)


def test_the_scheme_s_case_does_not_matter() -> None:
    assert TOKENS.identify(b"bEARER first") is not None


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", b"Bearer firs", b"Bearer firstx", b"Basic first", b"first"]
)
def test_anything_else_is_nobody(header: bytes | None) -> None:
    assert TOKENS.identify(header) is None
