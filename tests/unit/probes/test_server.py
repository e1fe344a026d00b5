"""A role's HTTP server, on either kind of address."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from types import SimpleNamespace
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry

from oldhost_sync.probes import server as probes
from oldhost_sync.probes.health import Liveness, Readiness
from oldhost_sync.probes.server import served
from oldhost_sync.stack.machine import free_port


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_it_serves_at_an_address_of_either_kind(address: str) -> None:
    bind = f"{address}:{free_port()}"
    with (
        served(bind, CollectorRegistry(), Readiness(), Liveness()),
        urllib.request.urlopen(f"http://{bind}/metrics", timeout=5) as answer,
    ):
        assert answer.status == 200


def test_a_process_without_a_free_file_descriptor_does_not_turn_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that can't be taken stays where it is, so the loop comes back at once."""
    pauses: list[float] = []
    monkeypatch.setattr(probes, "time", SimpleNamespace(sleep=pauses.append))
    with make_server("127.0.0.1", 0, lambda *_: [], server_class=probes._Server) as server:
        server.socket.close()
        with pytest.raises(OSError, match="descriptor"):
            server.get_request()
    assert pauses == [probes.ACCEPT_AGAIN_SECONDS]


@pytest.mark.parametrize("cut", [1, 2], ids=["one segment", "two segments"])
@pytest.mark.parametrize(
    "headers",
    [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 36",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue\r\nContent-Length: 36",
    ],
)
def test_one_connection_gives_one_answer_whatever_its_client_offers(headers: str, cut: int) -> None:
    bind = f"127.0.0.1:{free_port()}"
    body = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    head = f"POST /healthz HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode()
    with (
        served(bind, CollectorRegistry(), Readiness(), Liveness()),
        socket.create_connection(("127.0.0.1", int(bind.rpartition(":")[2])), timeout=5) as connection,
    ):
        for segment in [head + body] if cut == 1 else [head, body]:
            with contextlib.suppress(OSError):  # it may have been answered already
                connection.sendall(segment)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                answer += part
    assert answer.count(b"HTTP/1.0 ") == 1


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nothing"])
def test_head_is_answered_as_get_is_without_the_content(path: str) -> None:
    bind = f"127.0.0.1:{free_port()}"
    with served(bind, CollectorRegistry(), Readiness(), Liveness()):
        answers = []
        for method in ("GET", "HEAD"):
            with socket.create_connection(("127.0.0.1", int(bind.rpartition(":")[2])), timeout=5) as connection:
                connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                with connection.makefile("rb") as stream:
                    head, _, content = stream.read().partition(b"\r\n\r\n")
            shown = [line for line in head.splitlines() if not line.lower().startswith(b"date:")]
            answers.append((shown, content))
    (got, content), (headed, nothing) = answers
    assert headed == got
    assert f"content-length: {len(content)}".encode() in [line.lower() for line in headed]
    assert nothing == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_a_probe_is_read_only(method: str) -> None:
    bind = f"127.0.0.1:{free_port()}"
    with served(bind, CollectorRegistry(), Readiness(), Liveness()):
        asked = urllib.request.Request(f"http://{bind}/healthz", method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=5)
    with refused.value as answer:
        assert (answer.code, answer.headers["Allow"]) == (405, "GET, HEAD")
