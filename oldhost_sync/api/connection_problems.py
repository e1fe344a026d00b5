"""The answers to requests that are refused before they reach a route: problem+json, then the connection is closed."""

from __future__ import annotations

import json
from http import HTTPStatus

from oldhost_sync.api import limits
from oldhost_sync.api.problems import MEDIA_TYPE, Problem, unavailable

_LIMIT_REACHED = {
    "server": "This server has reached its limit of open connections.",
    "address": "This address has reached its limit of open connections.",
}


def too_many_connections(full: str) -> Problem:
    """`full`: as :meth:`ConnectionCount.enter` returns it."""
    action = "Use fewer connections, each for many requests, and try again later."
    return unavailable("too-many-connections", "Too many connections", _LIMIT_REACHED[full], action)


def unreadable() -> Problem:
    detail = "The data that was sent is not an HTTP request."
    return Problem(400, "not-http", "The request can't be read", detail, "Send HTTP/1.1.")


def bad_host(detail: str) -> Problem:
    return Problem(400, "bad-host", "The Host header is wrong", detail, "Send one header: Host: name, or name:port.")


def bad_version() -> Problem:
    detail = "The request is of another version of HTTP."
    return Problem(505, "bad-version", "The version of HTTP is not supported", detail, "Send HTTP/1.1.")


def no_tunnel() -> Problem:
    detail = "The method CONNECT is for proxies, and this is none."
    return Problem(501, "no-tunnel", "The method is not supported", detail, "Send the request to this server itself.")


def unknown_coding() -> Problem:
    detail = "A body may be chunked, in HTTP/1.1, and not coded otherwise."
    action = "Send a Content-Length, or Transfer-Encoding: chunked."
    return Problem(501, "unknown-coding", "The body's transfer coding is not supported", detail, action)


def repeated_header(name: str) -> Problem:
    detail = f"The header {name} occurs more than once."
    return Problem(400, "repeated-header", "A header is repeated", detail, "Send it only once.")


def too_many_waiting() -> Problem:
    detail = f"More than {limits.PIPELINED_MAX} requests wait in this connection."
    action = "Wait for answers before you send more requests."
    return Problem(400, "too-many-pipelined", "Too many requests at once", detail, action)


def header_too_large() -> Problem:
    detail = f"At most {limits.HEADER_BYTES_MAX} bytes and {limits.HEADERS_MAX} headers are accepted."
    return Problem(431, "header-too-large", "The request's header is too large", detail, "Send fewer, shorter headers.")


def request_too_large() -> Problem:
    detail = f"One request may have at most {limits.REQUEST_BYTES_MAX} bytes."
    return Problem(413, "too-large", "The request is too large", detail, "Send less in one request.")


def too_slow(what: str, seconds: float) -> Problem:
    """`what`: header or body."""
    detail = f"The {what} did not arrive within {seconds:g} s."
    return Problem(408, "too-slow", "The request did not arrive in time", detail, "Send it again, without a pause.")


def answer_bytes(problem: Problem) -> bytes:
    """The complete answer as bytes; the connection is closed after it."""
    body = json.dumps(problem.content, separators=(",", ":")).encode()
    headers = {
        **problem.headers,
        "Content-Type": MEDIA_TYPE,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
