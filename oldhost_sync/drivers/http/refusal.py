"""HTTP answers that are not OldHost's: it, or what stands before it, does not serve us."""

from __future__ import annotations

from http import HTTPStatus

from oldhost_sync.drivers.events import NoService
from oldhost_sync.drivers.http.response import Response

CREDENTIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_WHAT = {
    "credentials": "OldHost, or a proxy before it, refuses our credentials or our address",
    "refused": "OldHost, or a proxy before it, refuses our requests",
    "unreadable": "an answer that is not OldHost's",
}
_SIGN_IN = "a redirect or a web page, perhaps one to sign in, instead of OldHost's answer"


def no_service(response: Response) -> NoService:
    """What a complete answer means that the protocol does not have. The sentence has no word from outside."""
    status, retry_after = response.status, response.seconds_asked
    reason = _reason(response)
    what = _SIGN_IN if _wants_sign_in(response) else _WHAT[reason]
    asks = "" if retry_after is None else f", and asks us to wait {retry_after:g} s"
    is_for_all = status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
    why = f"{what}: status {status}{_phrase(status)}{asks}"
    return NoService(reason, why, retry_after, asks_all_to_wait=is_for_all)


def meets_all(response: Response) -> bool:
    """Whether any request of ours would be answered so, not just one operation for its content."""
    wants_less = response.status == HTTPStatus.TOO_MANY_REQUESTS or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _reason(response) == "credentials" or wants_less


def _reason(response: Response) -> str:
    """The reason of an opening that it ends: see `OpeningPostponed`."""
    if response.status in CREDENTIALS or _wants_sign_in(response):
        return "credentials"
    return "refused" if response.status >= HTTPStatus.BAD_REQUEST else "unreadable"


def _wants_sign_in(response: Response) -> bool:
    """Whether it is what a log-in before OldHost says: a redirect, which is not followed, or a page with a yes."""
    is_page = response.body.lstrip()[:1] == b"<"
    return 300 <= response.status < 400 or (is_page and response.status < 300)


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""
