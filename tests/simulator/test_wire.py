"""Framing: however the bytes are cut, the same requests come out, and no bytes do harm."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from oldhost_simulator.dialects.http import Request, RequestReader
from tests.simulator.client import ASK_BYTES, operation, sync_bytes


def read_all(*pieces: bytes) -> list[Request]:
    reader, requests = RequestReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next_request()) is not None:
            requests.append(request)
    return requests


STREAM = sync_bytes(1, operation()) + ASK_BYTES + sync_bytes(2, b"x" * 70_000) + b"\r\n" + ASK_BYTES


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=20))
def test_requests_are_the_same_however_their_bytes_are_cut(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(bounds)]
    requests = read_all(*pieces)
    assert requests == read_all(STREAM)
    assert [request.path for request in requests] == ["/oldhost/sync", "/oldhost/expected-nonce"] * 2
    assert requests[2].problem == "the body is over 64 KiB"


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_no_bytes_make_the_reader_fail(pieces: list[bytes]) -> None:
    for request in read_all(*pieces):
        assert request.problem is not None or request.method


def test_what_cannot_be_framed_ends_the_connection() -> None:
    heads = [
        b"hello\r\n\r\n",
        b"POST /oldhost/sync HTTP/2\r\n\r\n",
        b"POST /oldhost/sync HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /oldhost/sync HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /oldhost/sync HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /oldhost/sync HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /oldhost/sync HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"x" * 20_000,
    ]
    for head in heads:
        (request,) = read_all(head + ASK_BYTES)
        assert request.problem, head[:40]
        assert request.last


def test_a_request_that_closes_is_the_last() -> None:
    head = b"GET /oldhost/expected-nonce HTTP/1.1\r\nConnection: close\r\n\r\n"
    (request,) = read_all(head + ASK_BYTES)
    assert request.last
    assert request.problem is None
