from __future__ import annotations

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers.contract import Garbled
from oldhost_sync.drivers.http.response import Response, ResponseReader

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
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}H",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
        GOOD + b"\r\n",
        GOOD + GOOD,
        GOOD + b"\x00\xff",
    ],
)
def test_after_stray_bytes_or_a_close_the_connection_is_not_reusable(data: bytes) -> None:
    assert ResponseReader().feed(data) == Response(200, b"{}", reusable=False)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\x80garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"\r\n" + GOOD,
        b"HTTP/1.1 150 Early\r\nContent-Length: 5\r\n\r\nHTTP/" + GOOD,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(Garbled):
        ResponseReader().feed(data)


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\n{}") is None
    assert reader.end() == Response(200, b"{}", reusable=False)


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_response_that_is_cut_short_is_never_whole(length: int) -> None:
    reader = ResponseReader()
    assert reader.feed(GOOD[:length]) is None if length else True
    with pytest.raises(Garbled):
        reader.end()


@given(data=st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    reader = ResponseReader()
    try:
        response = reader.feed(data)
    except Garbled:
        return
    assert response is None or 200 <= response.status <= 999


INTERIM = (
    b"",
    b"",
    b"",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    b"\r\n",
    b" ",
)
FIRST_LINES = (
    *[b"HTTP/1.1 200 OK"] * 3, b"HTTP/1.0 200 OK", b"HTTP/1.1 422", b"HTTP/1.1  200 OK", b"HTTP/1.2 200 OK",
    b"HTTP/11 200 OK", b"http/1.1 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 099 OK",
    b"HTTP/1.1 204 OK", b"HTTP/1.1 101 OK",
)  # fmt: skip
HEADERS = (
    *[b"Content-Length: 2"] * 3, *[b"Transfer-Encoding: chunked"] * 2, b"content-length:2 ", b"Content-Length: 02",
    b"Content-Length: +2", b"Content-Length: 2, 2", b"Content-Length : 2", b"Content-Length: 3", b"Content-Length: ",
    b"Content-Length: 99999999999999999999999", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: Chunked ",
    b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade\r\nUpgrade: h2c", b"X:  y z ", b"X: a\r\n b",
    b" X: y", b"X", b": y", b"X\x00: y", b"X: \x00", b"X: \xff\x80", b"X@: y",
)  # fmt: skip
BODIES = (
    *[b"{}", b"2\r\n{}\r\n0\r\n\r\n"] * 2, b"", b"{}X", b"{}\r\n", b"{}" + GOOD, b"2;x=y\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}\r\n0\r\nT: v\r\n\r\n", b"2 \r\n{}\r\n0\r\n\r\n", b"2\n{}\n0\n\n", b"2\r\n{}0\r\n\r\n",
    b"0x2\r\n{}\r\n0\r\n\r\n",
)  # fmt: skip
LINE_ENDS = st.sampled_from([*[b"\r\n"] * 9, b"\n", b"\r", b"\r\r\n"])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Valid and nearly valid ones, some with a byte changed."""
    data = draw(st.sampled_from(INTERIM)) + draw(st.sampled_from(FIRST_LINES)) + draw(LINE_ENDS)
    for header in draw(st.lists(st.sampled_from(HEADERS), max_size=3)):
        data += header + draw(LINE_ENDS)
    data += draw(LINE_ENDS) + draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        return data
    place = draw(st.integers(0, len(data) - 1))
    return (
        data[:place]
        + draw(st.sampled_from([b"", *(bytes([one]) for one in b"\r\n :0;x\x01\x7f\xff")]))
        + data[place + 1 :]
    )


def read_by_h11(pieces: list[bytes]) -> Response | None:
    """What another grammar of HTTP reads; None if it refuses."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("host", "oldhost")]))
    http.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        for data in pieces:
            http.receive_data(data)
            while not isinstance(event := http.next_event(), type(h11.NEED_DATA)):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    reusable = http.their_state is h11.DONE and http.trailing_data == (b"", False)
                    return Response(status, body, reusable)
    except h11.RemoteProtocolError:
        pass
    return None


@given(data=responses(), cut=st.integers(0, 200))
def test_nothing_is_read_that_another_grammar_refuses_or_reads_otherwise(data: bytes, cut: int) -> None:
    pieces = [piece for piece in (data[:cut], data[cut:]) if piece] + [b""]
    reader = ResponseReader()
    try:
        response = next(answer for answer in (reader.feed(data) if data else reader.end() for data in pieces) if answer)
    except Garbled:
        return
    expected = read_by_h11(pieces)
    assert expected is not None
    assert (response.status, response.body) == (expected.status, expected.body)
    assert not response.reusable or expected.reusable
