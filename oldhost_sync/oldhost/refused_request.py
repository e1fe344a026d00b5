"""A complete answer that the protocol does not have: OldHost, or what stands before it, serves us not at all."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

CREDENTIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """`retry_after`: the seconds that its header asks for; None: none. Its text has no word from outside."""

    status: int
    retry_after: float | None = None

    @property
    def reason(self) -> str:
        """The reason of an opening that it ends: see `OpeningPostponed`."""
        if self.status in CREDENTIALS:
            return "credentials"
        return "refused" if self.status >= HTTPStatus.BAD_REQUEST else "unreadable"

    @property
    def is_of_us(self) -> bool:
        """Whether it would meet any request of ours, not just one operation for its content."""
        wants_less = self.status == HTTPStatus.TOO_MANY_REQUESTS or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.status in CREDENTIALS or wants_less

    @property
    def asks_all_to_wait(self) -> bool:
        return self.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}

    def __str__(self) -> str:
        asks = "" if self.retry_after is None else f", and asks us to wait {self.retry_after:g} s"
        return f"{_WHAT[self.reason]}: status {self.status}{_phrase(self.status)}{asks}"


_WHAT = {
    "credentials": "OldHost, or a proxy before it, refuses our credentials or our address",
    "refused": "OldHost, or a proxy before it, refuses our requests",
    "unreadable": "an answer that is not OldHost's",
}


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""
