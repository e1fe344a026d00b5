"""Where OldHost is, as its URL says: a scheme, a name, a port, and a path before the protocol's own paths."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

SHAPE = "http://address:port or https://address:port, with a path if its paths do not begin at the root"
# Of drivers that do not speak HTTP: TCP without and with TLS. Their ports are not known.
BARE = ("tcp", "tls")
_PROXY = "give the proxy as http://address:port"
# A name, or an IPv6 address.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
_PATH = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_PORTS = {"http": 80, "https": 443, **dict.fromkeys(BARE, 0)}


class Address(NamedTuple):
    """Where OldHost is. `authority`: as its URL names it, for the Host header. `tls`: the connection is TLS. `base`:
    comes before the protocol's paths.
    """

    name: str
    port: int
    authority: str = "oldhost"
    tls: bool = False
    base: str = ""
    scheme: str = "http"


def parse_proxy(url: str) -> Address:
    """The address of a proxy, http://address:port; ValueError for anything else."""
    if has_credentials(url):
        raise ValueError(f"{_PROXY}, without user and password: the proxy's own file of credentials has them")
    try:
        proxy = parse_address(url)
    except ValueError:
        raise ValueError(_PROXY) from None
    if proxy.scheme != "http" or proxy.base:
        raise ValueError(f"{_PROXY}; one that is reached over TLS or at a path can't be used")
    return proxy


def parse_address(url: str) -> Address:
    """The address that a URL names; ValueError for anything else. Port 80 or 443 unless one is given.

    Nothing in it is ignored: who gives a password would believe that it is used. A name beyond ASCII has two encodings,
    which may belong to two owners, so its owner gives the one that is meant.
    """
    if not url.isascii():
        raise ValueError(f"give it as {SHAPE}, in ASCII: an international name in its form that begins with xn--")
    if has_credentials(url):
        raise ValueError(
            f"give it as {SHAPE}, without user and password: SYNC_OLDHOST_AUTH_FILE, or auth_file, has them"
        )
    try:
        parts = urlsplit(url)
        port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"give it as {SHAPE}; the port is a number from 1 to 65535")
    base = parts.path.rstrip("/")
    if parts.scheme in BARE and base:
        raise ValueError(f"give it without a path: {parts.scheme}://address:port has none")
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or re.search(r"\s", url):
        raise ValueError(f"give it as {SHAPE}, without a query")
    if not _PATH.fullmatch(base) or "/../" in f"{base}/" or "/./" in f"{base}/":
        raise ValueError(f"give it as {SHAPE}; the path has letters, digits and signs that URLs allow, and no '..'")
    if not _NAME.fullmatch(parts.hostname):
        raise ValueError(f"give it as {SHAPE}; a name has letters, digits, '-', '_' and dots, each part 63 at most")
    return Address(parts.hostname, port, parts.netloc, parts.scheme in {"https", "tls"}, base, parts.scheme)


def has_credentials(url: str) -> bool:
    """Whether a user or a password is in the URL."""
    return "@" in re.split(r"[/?#]", url.partition("//")[2], maxsplit=1)[0]
