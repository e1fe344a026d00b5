"""Every limit of the simulator, with its reason."""

from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
"""docs/protocol.md: a body over 64 KiB is malformed."""

DISCARDED_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""A body above the limit is read and thrown away, so that the connection stays open; above this it is closed."""

HEAD_BYTES_MAX: Final = 16 * 1024
"""Request line and headers; the protocol needs only one header."""

FRAME_BYTES_MAX: Final = 128 * 1024
"""docs/frame-protocol.md: a longer request ends its connection."""

READ_BYTES: Final = 64 * 1024
"""One read from the socket: nearly always a whole request."""

NONCE_DIGITS_MAX: Final = 18
"""With this limit any nonce fits a client's signed 64-bit column."""

NESTING_MAX: Final = 200
"""Levels of a JSON body (RFC 8259, 9 allows a limit): far below the interpreter's recursion limit."""

LINGER_SECONDS: Final = 2.0
"""How long a closed connection may still send: an immediate close would reset it, and the answer would be lost."""

LINGERING_MAX: Final = 64
"""More refused connections than this at a time are closed at once."""

BACKLOG: Final = 128
"""Connections that the kernel queues for us; they are accepted at once, so the queue is never nearly full."""

ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
"""An admin request is a few parameters; a foreign write may have a body."""

ADMIN_ANSWER_SECONDS_MAX: Final = 10.0
"""The loop answers an admin request between two calls, within milliseconds; after ten seconds it counts as dead."""

JOURNAL_WAIT_SECONDS_MAX: Final = 60.0
"""The longest that `GET /journal?wait_seconds=` may delay its answer."""

TIMER_RESOLUTION_SECONDS: Final = 0.001
"""epoll waits in whole milliseconds; the loop sleeps the rest, so that 8.4 ms are 8.4 ms."""

WAIT_SECONDS_MAX: Final = 3600.0
"""The longest single wait of the loop, however far the next due time is: epoll refuses more than 24 days at once."""

FOREIGN_WRITES_MAX: Final = 10_000
"""In one request: each is a line of the journal, written by the thread that also serves the client."""

assert DISCARDED_BODY_BYTES_MAX > BODY_BYTES_MAX
assert READ_BYTES >= HEAD_BYTES_MAX
