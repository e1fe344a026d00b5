"""Where OldHost is: it speaks plain HTTP at its root (docs/protocol.md)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

SHAPE = "http://address:port"


class Address(NamedTuple):
    """Where OldHost is. `authority`: as its URL names it, for the Host header."""

    name: str
    port: int
    authority: str = "oldhost"


def parse_address(url: str) -> Address:
    """Address and port of `http://address:port`; ValueError for anything else. Port 80 unless one is given."""
    try:
        parts = urlsplit(url)
        port = 80 if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"give it as {SHAPE}; the port is a number from 1 to 65535")
    more = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme != "http" or not parts.hostname or more or re.search(r"\s", url):
        raise ValueError(f"give it as {SHAPE}: it speaks plain HTTP, at its root")
    return Address(parts.hostname, port, parts.netloc.rpartition("@")[2])
