"""The errors at OldHost's boundary: each one's cause, and what to do.

HostError
├── NoConnection          host or network; retry a little later (nothing was sent)
│   └── NoAccess          certificates or credentials; retry seldom, an operator must act (nothing was sent)
├── NothingWritten        network; retry on a new connection (not one byte of the request was sent)
├── ExchangeCut           any cause; never retry blindly: the request may have been applied (recovery decides)
│   ├── Silent            host or network; as ExchangeCut: not one byte of the answer arrived in time
│   ├── Unreadable        host or proxy; as ExchangeCut: bytes arrived that are not a valid answer
│   └── CertificateRefused  credentials; as ExchangeCut: an operator must act
└── ConnectionClosed      ours: the connection was given up; open a new session
LedgerError
├── Fenced                another session took over; stop, never touch the host again
├── LedgerHalted          an operator must decide first
├── LedgerUnavailable     database; the outcome may be unknown: close, and let recovery read what was committed
└── InvariantViolated     a bug, or rows changed by hand; halt, never go on (docs/reliability.md, level L0)
"""

# ruff: noqa: N818 - a name says what happened, as `except Fenced` reads

from __future__ import annotations


class HostError(Exception):
    """Anything the connection to OldHost raises on purpose."""


class NoConnection(HostError):
    """OldHost can't be reached or refuses the connection. Nothing was sent."""


class NoAccess(NoConnection):
    """No connection by our rules, OldHost's or a proxy's. `reason`: "tls" (its certificate is not trusted, or it speaks
    no TLS), "credentials" (ours are refused or can't be read), or "refused" and "unreadable" (a proxy's answers).
    `retry_after`: the seconds that we are asked to wait, if any. The message holds no secret.
    """

    def __init__(self, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class NothingWritten(HostError):
    """The connection broke before the first byte of the request was handed to the network."""


class ExchangeCut(HostError):
    """No complete answer: closed, silent past the deadline, or garbage. The request may have been applied."""


class Silent(ExchangeCut):
    """No byte of an answer arrived before the timeout. The request may have been applied."""


class Unreadable(ExchangeCut):
    """The bytes are not an HTTP response within the limits. The request may have been applied."""


class CertificateRefused(ExchangeCut):
    """Instead of an answer OldHost ended the connection, because of our certificate. TLS 1.3 says so no sooner."""


class ConnectionClosed(HostError):
    """It was closed before and is never used again."""


class LedgerError(Exception):
    """Anything a ledger raises on purpose."""


class Fenced(LedgerError):
    """The epoch is stale: another session owns the host."""


class LedgerHalted(LedgerError):
    """The host is halted until an operator decides; the message says why."""


class LedgerUnavailable(LedgerError):
    """The database did not answer or did not say whether it committed."""


class InvariantViolated(LedgerError):
    """An impossible state. Sending stops and the writer is halted with this message."""


def check(holds: bool, otherwise: str) -> None:
    """Check an invariant, in production too. Raises InvariantViolated, with `otherwise` as its message."""
    if not holds:
        raise InvariantViolated(otherwise)
