"""Replies that are not valid answers: each might mislead a client."""

from collections.abc import Mapping
from typing import Final

from oldhost_simulator.operation import Call
from oldhost_simulator.wire import Answer, encode

_HTML: Final = b"<html><body>It works!</body></html>"


def garbage(kind: str, call: Call) -> tuple[bytes, bool]:
    """The reply, and whether the connection can still be used for HTTP after it."""
    nonce = (call.nonce or 0) + 1
    replies: Mapping[str, bytes] = {
        "bytes": b"\x00\xff\x13\x37OLDHOST ABEND 0C7\r\n\r\n\x00\x00",
        "not_json": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_HTML) + _HTML,
        "status": encode(Answer(500, {"error": "internal"})),
        "other_nonce": encode(Answer(200, {"nonce": nonce, "expected_nonce": nonce + 1})),
    }
    return replies[kind], kind != "bytes"
