"""Where OldHost is: it speaks plain HTTP at its root (docs/protocol.md)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

SHAPE = "http://address:port"
# A name, or an IPv6 address.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")


class Address(NamedTuple):
    """Where OldHost is. `authority`: as its URL names it, for the Host header."""

    name: str
    port: int
    authority: str = "oldhost"


def parse_address(url: str) -> Address:
    """Address and port of `http://address:port`; ValueError for anything else. Port 80 unless one is given.

    Nothing in it is ignored: who gives a password would believe that it is used. A name beyond ASCII has two encodings,
    which may belong to two owners, so its owner gives the one that is meant.
    """
    if not url.isascii():
        raise ValueError(f"give it as {SHAPE}, in ASCII: an international name in its form that begins with xn--")
    if has_credentials(url):
        raise ValueError(f"give it as {SHAPE}, without user and password: OldHost knows none")
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
    if not _NAME.fullmatch(parts.hostname):
        raise ValueError(f"give it as {SHAPE}; a name has letters, digits, '-', '_' and dots, each part 63 at most")
    return Address(parts.hostname, port, parts.netloc)


def has_credentials(url: str) -> bool:
    """Whether a user or a password is in the URL."""
    return "@" in re.split(r"[/?#]", url.partition("//")[2], maxsplit=1)[0]
