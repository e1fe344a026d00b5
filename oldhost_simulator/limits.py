"""Every limit of the simulator, with its reason."""

from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
"""The contract: a body over 64 KiB is malformed."""

DISCARDED_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""A body above the limit is read and thrown away, so that the connection stays open; above this it is closed."""

HEAD_BYTES_MAX: Final = 16 * 1024
"""Request line and headers; the contract needs one header, so this is generous."""

READ_BYTES: Final = 64 * 1024
"""One read from the socket: a whole request nearly always."""

NONCE_DIGITS_MAX: Final = 18
"""Any nonce fits a signed 64-bit column of whoever keeps a ledger of them."""

NESTING_MAX: Final = 200
"""Levels of a JSON body (RFC 8259, 9 allows a limit): far below the interpreter's recursion limit."""

LINGER_SECONDS: Final = 2.0
"""How long a closed connection may still send: closing at once would reset it, and the answer would be lost."""

LINGERING_MAX: Final = 64
"""More refused connections than this at a time are closed at once."""

BACKLOG: Final = 128
"""Connections the kernel completes for us; accepted at once, so this is never near full."""

ADMIN_BODY_BYTES_MAX: Final = 1024 * 1024
"""An admin request is a few parameters; a foreign write may bring a body."""

ADMIN_ANSWER_SECONDS_MAX: Final = 10.0
"""The loop answers an admin question between two requests, within milliseconds; ten seconds mean that it is dead."""

JOURNAL_WAIT_SECONDS_MAX: Final = 60.0
"""The longest that `GET /journal?wait_seconds=` may hold its answer back."""

TIMER_RESOLUTION_SECONDS: Final = 0.001
"""epoll waits in whole milliseconds; the rest of a wait is slept, so that 8.4 ms means 8.4 ms."""

WAIT_SECONDS_MAX: Final = 3600.0
"""The longest single wait of the loop, however far the next due time is: epoll refuses more than 24 days at once."""

FOREIGN_WRITES_MAX: Final = 10_000
"""At once: each is a line of the journal, written by the one thread that also serves the client."""

assert DISCARDED_BODY_BYTES_MAX > BODY_BYTES_MAX
assert READ_BYTES >= HEAD_BYTES_MAX
