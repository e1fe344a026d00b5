"""The caller's `traceparent`: what is valid is followed, what is not begins a trace of its own."""

from __future__ import annotations

import pytest

from oldhost_sync.traces.span import RemoteParent, SpanAddress, read_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ADDRESS = SpanAddress(int(TRACE, 16), int(SPAN, 16))


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"  00-{TRACE}-{SPAN}-01 ", True),
    ],
)
def test_a_valid_header_names_the_callers_span(header: str, sampled: bool) -> None:
    assert read_traceparent(header.encode()) == RemoteParent(ADDRESS, sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\x00",
    ],
)
def test_an_invalid_header_is_as_none(header: str) -> None:
    assert read_traceparent(header.encode()) is None
