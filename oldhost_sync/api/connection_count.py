"""The number of open connections, in total and from each address; connections above the limits are refused.

But a connection that asks nothing keeps nobody out: when all are taken, one that waits for its client gives way to the
new one, the oldest of the address that has the most. Only when all are being answered is a new one refused.

Each process counts only its own connections. The address is that of the socket, because any client can set
`X-Forwarded-For`; so behind a proxy all connections have the proxy's address.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Protocol

# The network that one IPv6 customer gets: one customer can use any number of single addresses in it.
IPV6_PREFIX = 64


class Connection(Protocol):
    """A connection that is counted."""

    @property
    def waits_for_client(self) -> bool:
        """Whether it has no request to answer."""

    def give_way(self) -> None:
        """End, at once."""


class ConnectionCount:
    """`at_most` connections in total, `of_one` from each address. `lingering`: refused ones that are not closed yet.

    `on_refused` is called with the limit that was reached, as `enter` returns it, or "idle" when one gave way.
    """

    def __init__(self, at_most: int, of_one: int, on_refused: Callable[[str], None] = lambda _full: None) -> None:
        self._at_most = at_most
        self._of_one = of_one
        self._on_refused = on_refused
        # The connections of each address, the oldest first.
        self._by_address: dict[str, dict[Connection, None]] = {}
        self.open = self.lingering = 0

    def enter(self, address: str, connection: Connection) -> str:
        """Count one more connection and return an empty text; or count nothing and return which limit is reached
        ("address", "server").
        """
        full = ""
        if len(self._by_address.get(address, ())) >= self._of_one:
            full = "address"
        elif self.open >= self._at_most and not self._make_room():
            full = "server"
        if full:
            self._on_refused(full)
            return full
        self.open += 1
        self._by_address.setdefault(address, {})[connection] = None
        return ""

    def leave(self, address: str, connection: Connection) -> None:
        """A connection that was counted has ended; or it gave way, and is not counted any more."""
        of_address = self._by_address.get(address, {})
        if connection in of_address:
            del of_address[connection]
            self.open -= 1
        if not of_address:
            self._by_address.pop(address, None)

    def _make_room(self) -> bool:
        for address, connections in sorted(self._by_address.items(), key=lambda item: -len(item[1])):
            for connection in connections:
                if connection.waits_for_client:
                    self.leave(address, connection)
                    self._on_refused("idle")
                    connection.give_way()
                    return True
        return False


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
