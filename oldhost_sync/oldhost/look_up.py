"""A query to the name server, in a thread of its own: a slow one blocks nobody who must heartbeat."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

SockAddress = tuple[socket.AddressFamily, tuple[object, ...]]
Resolve = Callable[[str, int], list[SockAddress]]


def resolve(name: str, port: int) -> list[SockAddress]:
    """The system's answer; raises OSError. May take long."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class LookUp:
    """Runs in a daemon thread, so that it does not delay the process's end."""

    def __init__(self, ask: Callable[[], list[SockAddress]]) -> None:
        self.ended = threading.Event()
        self.found: list[SockAddress] = []
        self.error: OSError | None = None
        self._ask = ask
        threading.Thread(target=self._run, name="look-up", daemon=True).start()

    def _run(self) -> None:
        try:
            self.found = self._ask()
        except (OSError, UnicodeError) as error:  # a label that is too long raises UnicodeError
            self.error = error if isinstance(error, OSError) else OSError(str(error))
        finally:
            self.ended.set()
