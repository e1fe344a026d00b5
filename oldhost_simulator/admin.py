"""The admin port: JSON over HTTP/1.1, several clients at once, each request is answered by the loop's thread.

`Controls` is what tests and people can read from OldHost and do to it besides its wire; the rest are routes and HTTP.
An invalid request gets a 400 or 404 with `{"error", "reason"}`; a loop that no longer answers, a 503.
"""

import concurrent.futures
import contextlib
import json
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

from oldhost_simulator.call_handler import CallHandler, Counters
from oldhost_simulator.faults import (
    InvalidParameterError,
    Switchboard,
    read_number,
    read_object,
    read_only,
    read_whole_number,
)
from oldhost_simulator.host import Entry, fact_to_json
from oldhost_simulator.limits import (
    ADMIN_ANSWER_SECONDS_MAX,
    ADMIN_BODY_BYTES_MAX,
    FOREIGN_WRITES_MAX,
    JOURNAL_WAIT_SECONDS_MAX,
)
from oldhost_simulator.loop import Clock, Loop, LoopEndedError
from oldhost_simulator.server import Pace, Server

T = TypeVar("T")


class Controls:
    """Each runs in the loop's thread, takes and returns JSON values; InvalidParameterError says what is wrong."""

    def __init__(
        self,
        clock: Clock,
        call_handler: CallHandler,
        faults: Switchboard,
        pace: Pace,
        counters: Counters,
        server: Server,
    ) -> None:
        self._clock = clock
        self._call_handler = call_handler
        self._host = call_handler.host
        self._faults = faults
        self._pace = pace
        self._counters = counters
        self._server = server

    # ------------------------------------------------------------------------------------------------- reading

    def journal(self, since: int) -> list[Entry]:
        return self._host.journal[since:]

    def incidents(self) -> dict[str, Any]:
        return {"incidents": [fact_to_json(incident) for incident in self._host.incidents]}

    def records(self) -> dict[str, Any]:
        records = [
            {"entity_type": entity_type, "entity_id": entity_id, "event_type": event_type, **_record(entry)}
            for (entity_type, entity_id, event_type), entry in self._host.records.items()
        ]
        return {"records": records, "expected_nonce": self._host.expected_nonce}

    def stats(self) -> dict[str, Any]:
        now, counters, host = self._clock.now(), self._counters, self._host
        return {
            "requests": counters.requests,
            "applied": counters.applied,
            "rejected": counters.rejected,
            "gaps": host.count("gap"),
            "replays": host.count("replay"),
            "bans": host.count("ban"),
            "banned_requests": counters.banned_requests,
            "busy_answers": counters.busy_answers,
            "malformed": counters.malformed,
            "connections": counters.connections,
            "refused_connections": counters.refused_connections,
            "reset_connections": counters.reset_connections,
            "expected_nonce": host.expected_nonce,
            "journal_length": len(host.journal),
            "banned_until": host.banned_until(now),
            "busy_seconds": counters.busy_until(now),
            "uptime_seconds": now - counters.started_at,
            "busy_share": counters.busy_share(now),
            "window_seconds": counters.window_seconds(now),
            "last_request_at": counters.last_request_at,
            "latency_ms": self._pace.latency_ms,
            "jitter_ms": self._pace.jitter_ms,
            "now": now,
        }

    def reset_stats(self) -> dict[str, Any]:
        self._counters.reset_window(self._clock.now())
        return self.stats()

    # -------------------------------------------------------------------------------------------------- faults

    def faults(self) -> dict[str, Any]:
        return {"faults": self._faults.faults()}

    def switch_on(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        fault = self._faults.switch_on(wanted)
        self._server.faults_changed()
        return fault

    def switch_off(self, name: str | None = None) -> dict[str, Any]:
        return {"switched_off": self._faults.switch_off(name)}

    # ------------------------------------------------------------------------------------------------- actions

    def ban(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        now = self._clock.now()
        read_only(wanted, ("seconds",), "ban")
        seconds = read_number("seconds", wanted.get("seconds", self._host.ban_seconds))
        self._call_handler.record([self._host.ban(now, seconds)])
        return {"banned_until": self._host.banned_until(now)}

    def unban(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, (), "unban")
        now = self._clock.now()
        was_banned = self._host.banned_until(now) is not None
        if was_banned:
            self._call_handler.record([self._host.unban(now)])
        return {"was_banned": was_banned}

    def restore(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("expected_nonce",), "restore")
        expected_nonce = read_whole_number("expected_nonce", wanted.get("expected_nonce"))
        try:
            self._call_handler.record([self._host.restore(self._clock.now(), expected_nonce)])
        except ValueError as error:
            raise InvalidParameterError(str(error)) from None
        return {"expected_nonce": self._host.expected_nonce}

    def reset(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, (), "reset")
        self._call_handler.record([self._host.reset(self._clock.now())])
        return {"number": self._host.number(self._host.expected_nonce)}

    def restart(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Its program is started anew: the connection ends, and what only its memory had is gone."""
        read_only(wanted, (), "restart")
        self._server.close_connection()
        self._host.started(self._clock.now())
        return {"incarnation": self._host.incarnation}

    def foreign_write(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("count", "body"), "foreign-write")
        body = read_object("body", wanted["body"]) if "body" in wanted else None
        for _ in range(read_whole_number("count", wanted.get("count", 1), up_to=FOREIGN_WRITES_MAX)):
            self._call_handler.record([self._host.foreign_write(self._clock.now(), body)])
        return {"expected_nonce": self._host.expected_nonce}

    def latency(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("latency_ms", "jitter_ms"), "latency")
        latency_ms = read_number("latency_ms", wanted.get("latency_ms", self._pace.latency_ms))
        jitter_ms = read_number("jitter_ms", wanted.get("jitter_ms", self._pace.jitter_ms))
        self._pace.latency_ms, self._pace.jitter_ms = latency_ms, jitter_ms
        return {"latency_ms": latency_ms, "jitter_ms": jitter_ms}

    def close_connection(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, (), "close-connection")
        return {"closed": self._server.close_connection()}


def entry_to_json(index: int, entry: Entry) -> dict[str, Any]:
    return {"index": index, **fact_to_json(entry)}


def _record(entry: Entry) -> dict[str, Any]:
    body = entry.body or {}
    return {"payload": body.get("payload"), "body": body, "nonce": entry.nonce, "applied_at": entry.applied_at}


# ----------------------------------------------------------------------------------------------------- routes and HTTP

_READS: Final[Mapping[str, Callable[[Controls], dict[str, Any]]]] = {
    "/incidents": Controls.incidents,
    "/records": Controls.records,
    "/stats": Controls.stats,
    "/faults": Controls.faults,
    "/healthz": lambda _: {"status": "ok"},
}
_WRITES: Final[Mapping[str, Callable[[Controls, Mapping[str, Any]], dict[str, Any]]]] = {
    "/faults": Controls.switch_on,
    "/stats/reset": lambda controls, _: controls.reset_stats(),
    "/actions/ban": Controls.ban,
    "/actions/unban": Controls.unban,
    "/actions/restore": Controls.restore,
    "/actions/reset": Controls.reset,
    "/actions/restart": Controls.restart,
    "/actions/foreign-write": Controls.foreign_write,
    "/actions/latency": Controls.latency,
    "/actions/close-connection": Controls.close_connection,
}


class UnknownRouteError(Exception):
    """The client asked for a path that is not served."""


class Admin:
    """Maps routes to controls; has no socket."""

    def __init__(self, loop: Loop, call_handler: CallHandler, controls: Controls) -> None:
        self._loop = loop
        self._call_handler = call_handler
        self._controls = controls

    def respond(self, method: str, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            return 200, self._route(method, urlsplit(target).path, parse_qs(urlsplit(target).query), body)
        except InvalidParameterError as error:
            return 400, {"error": "bad_request", "reason": str(error)}
        except UnknownRouteError:
            return 404, {"error": "not_found", "reason": f"nothing is served at {method} {target}"}
        except (concurrent.futures.TimeoutError, LoopEndedError):
            return 503, {"error": "not_answering", "reason": "the host's loop does not answer"}

    def _route(self, method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> dict[str, Any]:
        controls = self._controls
        if method == "GET" and path == "/journal":
            return self._journal(query)
        if method == "GET" and path in _READS:
            return self._in_loop(lambda: _READS[path](controls))
        if method == "POST" and path in _WRITES:
            wanted = _json_object(body)
            return self._in_loop(lambda: _WRITES[path](controls, wanted))
        if method == "DELETE" and path == "/faults":
            return self._in_loop(controls.switch_off)
        if method == "DELETE" and path.startswith("/faults/"):
            name = unquote(path.removeprefix("/faults/"))
            return self._in_loop(lambda: controls.switch_off(name))
        raise UnknownRouteError

    def _journal(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        since = _query_number(query, "since", 0)
        limit = _query_number(query, "limit", None)
        wait_seconds = _query_number(query, "wait_seconds", 0)
        if wait_seconds:
            grown = self._in_loop(lambda: self._call_handler.wait_for_entry(since))
            concurrent.futures.wait([grown], timeout=min(wait_seconds, JOURNAL_WAIT_SECONDS_MAX))
            grown.cancel()
        entries = self._in_loop(lambda: self._controls.journal(since))[:limit]
        lines = [entry_to_json(since + offset, entry) for offset, entry in enumerate(entries)]
        return {"entries": lines, "next": since + len(lines)}

    def _in_loop(self, function: Callable[[], T]) -> T:
        return self._loop.call(function).result(ADMIN_ANSWER_SECONDS_MAX)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        return read_object("the body", json.loads(body or b"{}"))
    except (ValueError, RecursionError):
        raise InvalidParameterError("the body is not JSON") from None


def _query_number(query: Mapping[str, list[str]], key: str, default: Any) -> Any:
    if key not in query:
        return default
    text = query[key][0]
    if not (text.isascii() and text.isdigit()):
        raise InvalidParameterError(f"{key} must be a whole number from 0 on, not {text!r}")
    return int(text)


class AdminServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, host: str, port: int, family: socket.AddressFamily, admin: Admin) -> None:
        """Binds. Raises OSError."""
        self.address_family = family
        super().__init__((host, port), _Handler)
        self.admin = admin
        self._open: dict[socket.socket, None] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="oldhost-admin", daemon=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops at once; closes kept-alive connections, too."""
        self._closing = True
        if self._thread.is_alive():
            socket.create_connection((str(self.server_address[0]), self.port)).close()  # wakes the waiting thread
            self._thread.join()
        self.server_close()
        for sock in list(self._open):
            _shut(sock)

    def _serve(self) -> None:
        while not self._closing:
            self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has disconnected; prints any other error as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its own thread may have closed it already
        sock.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body are sent together

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def do_DELETE(self) -> None:
        self._respond()

    def _respond(self) -> None:
        length = self._body_length()
        if length is None or length > ADMIN_BODY_BYTES_MAX:
            self.close_connection = True
            status, answer = 400, {"error": "bad_request", "reason": "the body has no length, or is over 1 MiB"}
        else:
            admin = cast("AdminServer", self.server).admin
            status, answer = admin.respond(self.command, self.path, self.rfile.read(length))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body_length(self) -> int | None:
        """None if it is not told, or told twice or in chunks: what follows may then be taken for a request."""
        lengths = self.headers.get_all("Content-Length", ["0"])
        if len(lengths) > 1 or "Transfer-Encoding" in self.headers:
            return None
        return int(lengths[0]) if lengths[0].isascii() and lengths[0].isdigit() else None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Silent: standard output is only for the line with the addresses."""
