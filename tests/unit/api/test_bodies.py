"""Bodies are JSON in the strict sense, or refused with a reason that repeats nothing of them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import parse_body


class Anything(BaseModel):
    payload: dict[str, Any]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(Problem):
        parse_body(body, Anything)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_is_read_or_refused(value: object) -> None:
    with suppress(Problem):
        parse_body(json.dumps({"payload": value}).encode(), Anything)


def test_a_refusal_repeats_nothing_of_the_body() -> None:
    with pytest.raises(Problem) as refused:
        parse_body(b'{"payload": "a secret"}', Anything)
    assert "secret" not in str(refused.value.content)
