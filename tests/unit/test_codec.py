"""The codec of Temporal's payloads: what we send is small, what others send harms nothing."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from temporalio.api.common.v1 import Payload

from oldhost_sync.temporal.client import EXPANDED_BYTES_MAX, CompressLarge


def decoded(payload: Payload) -> Payload:
    return asyncio.run(CompressLarge().decode([payload]))[0]


def encoded(payload: Payload) -> Payload:
    return asyncio.run(CompressLarge().encode([payload]))[0]


def test_a_large_payload_comes_back_as_it_was() -> None:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"x" * 100_000 + b'"')
    assert len(encoded(payload).data) < 1_000
    assert decoded(encoded(payload)) == payload


def test_a_small_payload_stays_readable() -> None:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b"{}")
    assert encoded(payload) == payload


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"garbage", zlib.compress(b"\xff\xff\xff no payload"), zlib.compress(b"cut" * 100)[:-5]]
)
def test_foreign_bytes_under_our_name_pass_through(data: bytes) -> None:
    payload = Payload(metadata={"encoding": b"binary/zlib"}, data=data)
    assert decoded(payload) == payload


def test_a_bomb_is_not_expanded() -> None:
    payload = Payload(metadata={"encoding": b"binary/zlib"}, data=zlib.compress(bytes(EXPANDED_BYTES_MAX + 1)))
    assert decoded(payload) == payload
