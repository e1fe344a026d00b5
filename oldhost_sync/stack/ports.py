"""Ports on this machine: find a free one, or say that one is taken."""

from __future__ import annotations

import errno
import random
import socket


class PortTaken(Exception):  # noqa: N818 - it says what happened
    """Somebody else listens there: the operator's choice of port; stop the other one or take another port."""

    def __init__(self, address: str, port: int, purpose: str) -> None:
        super().__init__(f"port {port} on {address} is taken, and is wanted for {purpose}")
        self.port = port


# Below those that Linux gives to outgoing connections (32768 on, by default): such a port could be taken by any
# connection between the choice here and the server's start, seconds later.
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
    """`port` if it is free, any free one for None or 0; PortTaken when it is not."""
    if not port:
        return free_port(address)
    with socket.socket(_family(address)) as probe:
        # As the servers do: without it a port with connections in TIME_WAIT would look taken.
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
