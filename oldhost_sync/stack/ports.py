"""Ports on this machine: find a free one, or report that one is taken."""

from __future__ import annotations

import errno
import random
import socket

from oldhost_sync.stack.errors import StackError


class PortTaken(StackError):  # noqa: N818 - it says what happened
    """Another program listens there. The operator stops it, or chooses another port."""

    def __init__(self, address: str, port: int, purpose: str) -> None:
        super().__init__(f"port {port} on {address} is taken, but is needed for {purpose}")
        self.port = port


# Below the ports of outgoing connections (on Linux from 32768, by default): any connection could take one of those
# between the choice here and the server's start, seconds later.
PORTS = range(10_000, 32_768)
ATTEMPTS = 100


def free_port(address: str = "127.0.0.1") -> int:
    """A port that is free at this moment; another program may still take it first."""
    for port in random.sample(PORTS, ATTEMPTS):
        with socket.socket(_family(address)) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise PortTaken(address, 0, f"anything ({ATTEMPTS} were tried)")


def pick_port(port: int | None, purpose: str, address: str = "127.0.0.1") -> int:
    """`port`, or any free one for None or 0. Raises PortTaken when `port` is not free."""
    if not port:
        return free_port(address)
    with socket.socket(_family(address)) as probe:
        # As the servers do: without this option a port with connections in TIME_WAIT would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                raise PortTaken(address, port, purpose) from None
            raise
    return port


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
