from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.oldhost.response import BODY_BYTES_MAX, NotAResponse, Response, ResponseReader

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@given(cut=st.lists(st.integers(1, len(GOOD) - 1), unique=True).map(sorted))
def test_a_response_is_whole_however_it_is_cut(cut: list[int]) -> None:
    reader = ResponseReader()
    edges = [0, *cut, len(GOOD)]
    answers = [reader.feed(GOOD[start:end]) for start, end in itertools.pairwise(edges)]
    assert answers == [None] * (len(edges) - 2) + [Response(200, b"{}", reusable=True)]


def test_chunks_are_put_together() -> None:
    assert ResponseReader().feed(CHUNKED) == Response(200, b"{}", reusable=True)


def test_an_interim_response_is_passed_over() -> None:
    assert ResponseReader().feed(b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD) == Response(200, b"{}", reusable=True)


@pytest.mark.parametrize(
    "data",
    [
        GOOD + b"H",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_after_stray_bytes_or_a_close_the_connection_is_not_reusable(data: bytes) -> None:
    assert ResponseReader().feed(data) == Response(200, b"{}", reusable=False)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\x80garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b"x" * (BODY_BYTES_MAX + 1),
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(NotAResponse):
        ResponseReader().feed(data)


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_response_that_is_cut_short_is_never_whole(length: int) -> None:
    reader = ResponseReader()
    assert reader.feed(GOOD[:length]) is None if length else True
    with pytest.raises(NotAResponse):
        reader.feed(b"")


@given(data=st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    reader = ResponseReader()
    try:
        response = reader.feed(data)
    except NotAResponse:
        return
    assert response is None or 200 <= response.status <= 999
