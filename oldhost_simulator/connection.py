"""The one connection: its socket, what was read from it, and whether a request of it is in process.

Reading and writing never block and never raise for anything the peer does: a peer that has gone is not an error.
"""

import socket
import struct
from dataclasses import dataclass, field

from oldhost_simulator.limits import READ_BYTES
from oldhost_simulator.wire import RequestReader

# Linux keeps data sent with this flag until the connection is closed, and then sends both together.
WITH_THE_CLOSE = getattr(socket, "MSG_MORE", 0)


@dataclass(slots=True, eq=False)
class Connection:
    sock: socket.socket
    number: int
    reader: RequestReader = field(default_factory=RequestReader)
    watched: bool = False
    in_process: bool = False
    hanging: bool = False
    gone: bool = False
    idle_since: float = 0.0

    def read(self) -> bool:
        """Reads what has arrived; False when the peer has closed or reset the connection."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.reader.feed(data)
        return bool(data)

    def write(self, data: bytes, *, closes: bool = False) -> bool:
        """False when the peer has gone, or has not read for so long that the answer does not fit in its buffer.

        `closes`: the caller closes the connection next; the peer then gets data and end together, however slow this
        process is.
        """
        if self.gone:
            return False
        try:
            return self.sock.send(data, WITH_THE_CLOSE if closes else 0) == len(data)
        except OSError:
            return False

    def close(self, *, reset: bool = False) -> None:
        self.gone = True
        if reset:
            reset_on_close(self.sock)
        self.sock.close()


def reset_on_close(sock: socket.socket) -> None:
    """Make `close` send RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
