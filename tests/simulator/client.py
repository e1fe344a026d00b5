"""A client that hides nothing: one socket, bytes out, replies in. It never retries and never connects by itself."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

DEADLINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def operation(number: int = 1, *, status: str = "Clean", entity_id: str = "u1") -> dict[str, Any]:
    """A unit's operation as the protocol wants it."""
    return {
        "entity_type": "unit",
        "entity_id": entity_id,
        "event_type": "status",
        "payload": {"status": status},
        "event_id": number,
        "idempotency_key": f"key-{number}",
        "unit_id": entity_id,
        "status": status,
    }


def sync_bytes(nonce: int | str | None, body: Mapping[str, Any] | bytes) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    nonce_line = "" if nonce is None else f"X-Nonce: {nonce}\r\n"
    head = f"POST /oldhost/sync HTTP/1.1\r\nHost: oldhost\r\n{nonce_line}Content-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


ASK_BYTES = b"GET /oldhost/expected-nonce HTTP/1.1\r\nHost: oldhost\r\n\r\n"


class Asks(Protocol):
    def ask(self) -> Reply: ...


class Line:
    """One connection to OldHost."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=DEADLINE_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.sock.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self) -> Reply:
        """The next reply. Raises OSError where there is none or only a part, ValueError where it is
        no JSON over HTTP."""
        status_line = self._line()
        headers = {}
        while header := self._line():
            name, _, value = header.partition(":")
            headers[name] = value.strip()
        if not status_line.startswith("HTTP/1.1 ") or "Content-Length" not in headers:
            raise ValueError("the reply is no HTTP/1.1")
        length = int(headers["Content-Length"])
        data = self._file.read(length)
        if len(data) < length:
            raise ConnectionError("the reply was cut")
        return Reply(int(status_line.split(" ")[1]), json.loads(data), headers)

    def _line(self) -> str:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the reply was cut" if line else "closed without a reply")
        return line[:-2].decode("latin-1")

    def receive_to_end(self) -> bytes:
        """All that still comes until the host closes; a reset ends it too."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def sync(self, nonce: int | str | None, body: Mapping[str, Any] | bytes | None = None) -> Reply:
        self.send(sync_bytes(nonce, operation() if body is None else body))
        return self.receive()

    def ask(self) -> Reply:
        self.send(ASK_BYTES)
        return self.receive()

    def expected_nonce(self) -> int:
        reply = self.ask()
        assert reply.status == 200, reply
        nonce: int = reply.body["expected_nonce"]
        return nonce

    def close(self) -> None:
        self._file.close()
        self.sock.close()


def connect_when_free(url: str) -> Line:
    """A line to a host that may still be busy with the client before."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        line = Line(url)
        try:
            reply = line.ask()
        except OSError:
            reply = None
        if reply is not None and reply.body.get("error") != "connection_in_use":
            return line
        line.close()
        assert time.monotonic() < deadline, "the host's connection was never free"


def ask_until_unbanned(line: Asks) -> Reply:
    """The first answer that is no 403; each question takes the host's own time, so this is no busy loop."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (reply := line.ask()).status == 403:
        assert time.monotonic() < deadline, "the ban never ended"
    return reply


class AdminClient:
    """The admin port in the words of its routes."""

    def __init__(self, url: str) -> None:
        self._url = url

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None
    ) -> tuple[int, dict[str, Any]]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def get(self, path: str) -> dict[str, Any]:
        status, body = self.request("GET", path)
        assert status == 200, body
        return body

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        status, answer = self.request("POST", path, body or {})
        assert status == 200, answer
        return answer

    def delete(self, path: str) -> dict[str, Any]:
        status, answer = self.request("DELETE", path)
        assert status == 200, answer
        return answer

    def fault(self, name: str, **parameters: Any) -> dict[str, Any]:
        return self.post("/faults", {"name": name, **parameters})

    def journal(self, *, at_least: int = 0) -> list[dict[str, Any]]:
        """The whole journal, as soon as it has that many entries."""
        if at_least:
            self.get(f"/journal?since={at_least - 1}&wait_seconds={DEADLINE_SECONDS:.0f}")
        entries: list[dict[str, Any]] = self.get("/journal")["entries"]
        assert len(entries) >= at_least, entries
        return entries

    def applied_nonces(self, *, at_least: int = 0) -> list[int]:
        return [entry["nonce"] for entry in self.journal(at_least=at_least) if entry["outcome"] == "applied"]

    def stats(self) -> dict[str, Any]:
        return self.get("/stats")
