"""The way through an HTTP proxy: CONNECT (RFC 9110, 9.3.6), for plain and for TLS hosts alike.

Of the proxy's answer only the head is read, byte by byte: whatever comes behind a head that says yes is the host's.
Each other answer is a refusal. It ends the connection, so nothing is asked twice over one, and no body is read.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.errors import NoAccess

HEAD_BYTES_MAX = 16 * 1024
_BEGIN = b"HTTP/1."
_ENDS = (b"\r\n\r\n", b"\n\n")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")
_SECONDS = re.compile(rb"^retry-after:[ \t]*([0-9]{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CREDENTIALS = frozenset({401, 403, 407})

# Waits until the socket can be read from, or (True) written to; raises TimeoutError when the time is over.
Wait = Callable[[bool], None]


def open_tunnel(sock: socket.socket, proxy: Address, host: Address, authorization: str, wait: Wait) -> None:
    """Let `proxy`, at the other end of `sock`, connect us to `host`. Raises NoAccess when it refuses, OSError when it
    closes or is silent. `authorization`: our credentials for the proxy, a secret; empty: none.
    """
    left = _request(host, authorization)
    while left:
        wait(True)
        left = left[sock.send(left) :]
    status, head = _answer(sock, proxy, wait)
    while status < 200:  # an interim answer
        status, head = _answer(sock, proxy, wait)
    if status >= 300:
        raise _refusal(proxy, status, head)


def _request(host: Address, authorization: str) -> bytes:
    name = f"[{host.name}]" if ":" in host.name else host.name
    credentials = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    return f"CONNECT {name}:{host.port} HTTP/1.1\r\nHost: {name}:{host.port}\r\n{credentials}\r\n".encode("ascii")


def _answer(sock: socket.socket, proxy: Address, wait: Wait) -> tuple[int, bytes]:
    """The status and the head of the next answer; of a refusal perhaps only a part of the head."""
    head, byte = b"", b"?"
    while byte and not head.endswith(_ENDS) and len(head) < HEAD_BYTES_MAX and head[:7] == _BEGIN[: len(head)]:
        wait(False)
        byte = sock.recv(1)
        head += byte
    status = int(found[1]) if (found := _STATUS.match(head)) else 0
    if status >= 300 or (status and head.endswith(_ENDS)):
        return status, head
    if not byte:
        raise ConnectionAbortedError("it closed before its answer was complete")
    raise NoAccess("unreadable", f"the proxy {proxy.authority} gives an answer that is not HTTP, or too long")


def _refusal(proxy: Address, status: int, head: bytes) -> NoAccess:
    wants_other = status in _CREDENTIALS or status < 400  # a redirect leads to where people sign in
    what = "refuses our credentials or our address" if wants_other else "does not connect us to OldHost"
    asked = _SECONDS.search(head)
    reason = "credentials" if wants_other else "refused"
    seconds = float(asked[1]) if asked else None
    return NoAccess(reason, f"the proxy {proxy.authority} {what}: status {status}", seconds)
