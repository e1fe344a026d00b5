"""The number of open connections, in total and from each address; connections above the limits are refused.

Each process counts only its own connections. The address is that of the socket, because any client can set
`X-Forwarded-For`; so behind a proxy all connections have the proxy's address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address

# The network that one IPv6 customer gets: one customer can use any number of single addresses in it.
IPV6_PREFIX = 64


class ConnectionCount:
    """`at_most` connections in total, `of_one` from each address. `lingering`: refused ones that are not closed yet.

    `on_refused` is called with the limit that was reached, as `enter` returns it.
    """

    def __init__(self, at_most: int, of_one: int, on_refused: Callable[[str], None] = lambda _full: None) -> None:
        self._at_most = at_most
        self._of_one = of_one
        self._on_refused = on_refused
        self._by_address: Counter[str] = Counter()
        self.open = self.lingering = 0

    def enter(self, address: str) -> str:
        """Count one more connection and return an empty text; or count nothing and return which limit is reached
        ("address", "server").
        """
        full = "server" if self.open >= self._at_most else ""
        if self._by_address[address] >= self._of_one:
            full = "address"
        if full:
            self._on_refused(full)
            return full
        self.open += 1
        self._by_address[address] += 1
        return ""

    def leave(self, address: str) -> None:
        """A connection that was counted has ended."""
        self.open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def address_of(client: tuple[str, int] | None) -> str:
    """The client's address: an IPv4 address or an IPv6 network; empty for a socket in the file system."""
    if client is None:
        return ""
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Network((address, IPV6_PREFIX), strict=False))
    return str(address)
