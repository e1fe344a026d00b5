"""What a role serves over HTTP: metrics, liveness, readiness. No token is needed, so it shows no secrets.

`/metrics` is for Prometheus, `/healthz` answers while the process serves at all, `/readyz` tells the role's last check
of itself, so probes cost nothing. A check that is too old counts as unready: the role is stuck.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from oldhost_sync.settings import bind_address

STALE_SECONDS = 40.0

StartResponse = Callable[..., Any]


class Readiness:
    """The last check of each thing that a role needs: an empty text is well, any other says what is wrong."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._found: tuple[float, Mapping[str, str]] | None = None
        self._found_at = 0.0

    def found(self, troubles: Mapping[str, str]) -> None:
        self._found = self._monotonic(), dict(troubles)
        self._found_at = time.time()

    def looked_at(self) -> float:
        """When the role last looked at itself, in seconds since 1970; 0: not yet."""
        return self._found_at

    def look(self) -> tuple[bool, dict[str, str]]:
        """Whether it is ready, and the text for each need."""
        if self._found is None:
            return False, {"role": "it has just started"}
        at, troubles = self._found
        shown = {need: trouble or "ok" for need, trouble in sorted(troubles.items())}
        if self._monotonic() - at > STALE_SECONDS:
            return False, {**shown, "role": "it has not looked for a while: it is stuck or very busy"}
        return not any(troubles.values()), shown


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Probes come every few seconds."""


@contextmanager
def served(bind: str | None, registry: CollectorRegistry, readiness: Readiness) -> Iterator[None]:
    """Serve at "address:port" on a thread of its own; nothing is served without an address."""
    if not bind:
        yield
        return
    address, port = bind_address(bind)
    figures = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path in {"/", "/metrics"}:
            return figures(environ, start_response)  # type: ignore[no-any-return]
        if path == "/healthz":
            return _answer(start_response, HTTPStatus.OK, {"status": "ok"})
        if path == "/readyz":
            ready, shown = readiness.look()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return _answer(start_response, status, {"status": "ok" if ready else "unready", "checks": shown})
        return _answer(start_response, HTTPStatus.NOT_FOUND, {"status": "no such path"})

    server = make_server(address, port, app, server_class=_Server, handler_class=_SilentHandler)
    thread = threading.Thread(target=server.serve_forever, name="role-server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(start_response: StartResponse, status: HTTPStatus, content: dict[str, Any]) -> Iterable[bytes]:
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
    return [json.dumps(content).encode() + b"\n"]
