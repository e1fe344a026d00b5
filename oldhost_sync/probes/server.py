"""A role's HTTP server: metrics, liveness, readiness. No token is needed, so it shows no secrets.

`/metrics` is for Prometheus; `/healthz` and `/readyz` show the result of the role's last check (`health`), so
probes cost nothing. Connections are few and short. Above the limit the oldest one is closed, so silent connections
can't block others.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from oldhost_sync.probes.health import Liveness, Readiness
from oldhost_sync.settings import bind_address

# Each connection is a thread. Some probes and two Prometheus servers need only a few.
CONNECTIONS_MAX = 32
# A connection is for one request, from its first byte to the end of the answer.
REQUEST_SECONDS_MAX = 10.0
ACCEPT_AGAIN_SECONDS = 0.1
_METHODS = ("GET", "HEAD")

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class _Server(ThreadingMixIn, WSGIServer):
    """`handle_error` logs nothing: that a client disconnected does not matter."""

    daemon_threads = True

    def __init__(self, *given: Any, **named: Any) -> None:
        self._open: dict[socket.socket, float] = {}
        super().__init__(*given, **named)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # no file descriptor is left; the connection stays there, and the loop would turn at once
            time.sleep(ACCEPT_AGAIN_SECONDS)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del client_address
        for oldest in list(self._open)[: max(0, len(self._open) + 1 - CONNECTIONS_MAX)]:
            self._end(oldest)
        self._open[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """Called every half second."""
        late = time.monotonic() - REQUEST_SECONDS_MAX
        for connection, began in list(self._open.items()):
            if began < late:
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._open.pop(connection, None)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # a thread that reads or writes gets an error

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing: probes arrive every few seconds."""


def _application(registry: CollectorRegistry, readiness: Readiness, liveness: Liveness | None) -> Application:
    figures = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if method not in _METHODS:
            allowed = [("Allow", ", ".join(_METHODS))]
            return _answer(start_response, HTTPStatus.METHOD_NOT_ALLOWED, {"status": "only GET and HEAD"}, allowed)
        begun: list[Any] = []
        content = b"".join(get({**environ, "REQUEST_METHOD": "GET"}, lambda *given: begun.extend(given)))
        status, headers = begun
        start_response(status, [*headers, ("Content-Length", str(len(content)))])
        return [content] if method == "GET" else []

    def get(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path in {"/", "/metrics"}:
            return figures(environ, start_response)  # type: ignore[no-any-return]
        if path == "/healthz":
            if liveness is None or liveness.is_alive:
                return _answer(start_response, HTTPStatus.OK, {"status": "ok"})
            return _answer(start_response, HTTPStatus.SERVICE_UNAVAILABLE, {"status": "stuck"})
        if path == "/readyz":
            ready, shown = readiness.poll()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return _answer(start_response, status, {"status": "ok" if ready else "unready", "checks": shown})
        return _answer(start_response, HTTPStatus.NOT_FOUND, {"status": "no such path"})

    return app


@contextmanager
def served(
    bind: str | None, registry: CollectorRegistry, readiness: Readiness, liveness: Liveness | None = None
) -> Iterator[None]:
    """Serve at "address:port" in a separate thread; without an address nothing is served."""
    if not bind:
        yield
        return
    address, port = bind_address(bind)
    app = _application(registry, readiness, liveness)
    kind = _ServerOfIPv6 if ":" in address else _Server
    server = make_server(address, port, app, server_class=kind, handler_class=_SilentHandler)
    thread = threading.Thread(target=server.serve_forever, name="role-server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(
    start_response: StartResponse,
    status: HTTPStatus,
    content: dict[str, Any],
    more: Sequence[tuple[str, str]] = (),
) -> Iterable[bytes]:
    text = json.dumps(content).encode() + b"\n"
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json"), *more])
    return [text]
