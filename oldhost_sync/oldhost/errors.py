"""What may go wrong at OldHost's boundary; each leaf says whose fault it is and whether to try again.

HostError
├── NoConnection          the host's or the network's; yes, a little later (nothing was sent)
├── NothingWritten        the network's; yes, on a new connection (not one byte of the request left)
├── ExchangeCut           anybody's; never blindly: the request may have been applied (recovery decides)
│   ├── Silent            the host's or the network's; likewise: not one byte came in time
│   └── Unreadable        the host's or a proxy's; likewise: bytes came, and they are no answer
└── ConnectionClosed      ours: the connection was given up; open a new session
LedgerError
├── Fenced                nobody's: another session took over; stop, never touch the host again
├── LedgerHalted          an operator must decide first
├── LedgerUnavailable     the database's; the outcome may be unknown: close, and let recovery read what is there
└── InvariantViolated     ours: a bug or a foreign hand; halt, never go on (docs/reliability.md, level L0)
"""

# ruff: noqa: N818 - a name says what happened, as `except Fenced` reads

from __future__ import annotations


class HostError(Exception):
    """Anything the connection to OldHost raises on purpose."""


class NoConnection(HostError):
    """OldHost can't be reached or refuses the connection. Nothing was sent."""


class NothingWritten(HostError):
    """The connection broke before the first byte of the request was handed to the network."""


class ExchangeCut(HostError):
    """No whole answer came: closed, silent past the deadline, or garbage. The request may have been applied."""


class Silent(ExchangeCut):
    """No byte of an answer came as long as it was waited for. The request may have been applied."""


class Unreadable(ExchangeCut):
    """What came is no HTTP response within the limits. The request may have been applied."""


class ConnectionClosed(HostError):
    """It was closed before and is never used again."""


class LedgerError(Exception):
    """Anything a ledger raises on purpose."""


class Fenced(LedgerError):
    """The epoch is not ours any more: another session owns the host."""


class LedgerHalted(LedgerError):
    """The host is halted until an operator decides; the message says why."""


class LedgerUnavailable(LedgerError):
    """The database did not answer or did not say whether it committed."""


class InvariantViolated(LedgerError):
    """Something that cannot be. Sending stops and the writer is halted with this message."""
