"""What the simulator says by HTTP, byte by byte (`http_bytes.json`), so that no other dialect ever changes it.

`python -m tests.simulator.test_http_bytes` writes the file anew.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator.admin import Controls
from oldhost_simulator.simulator import Config, Simulator
from tests.simulator.client import ASK_BYTES, DEADLINE_SECONDS, operation, sync_bytes

FILE = Path(__file__).with_name("http_bytes.json")
SYNC = [sync_bytes(nonce, operation(nonce)) for nonce in range(5)]
CLOSING = SYNC[1].replace(b"Host: oldhost\r\n", b"Host: oldhost\r\nConnection: close\r\n")

# What is switched on, and what a client sends on each of its connections.
CASES: dict[str, tuple[list[dict[str, Any]], list[bytes]]] = {
    "applied": ([], [ASK_BYTES + SYNC[1] + SYNC[2] + ASK_BYTES]),
    "gap": ([], [SYNC[3] + SYNC[1]]),
    "replay and ban": ([], [SYNC[1] + SYNC[1] + ASK_BYTES + SYNC[2] + SYNC[0]]),
    "malformed": ([], [sync_bytes(None, operation()) + sync_bytes("x", operation()) + sync_bytes(1, b"{")]),
    "too long": ([], [sync_bytes(1, b"x" * 70_000) + ASK_BYTES]),
    "no http": ([], [b"hello\r\n\r\n" + ASK_BYTES]),
    "other path": ([], [b"GET /health HTTP/1.1\r\n\r\n" + ASK_BYTES]),
    "last": ([], [CLOSING + ASK_BYTES]),
    "no field": ([], [sync_bytes(1, {"entity_type": "unit"})]),
    "rejected": ([{"name": "reject", "reason": "no"}], [SYNC[1] + ASK_BYTES]),
    "rejected, unused": ([{"name": "reject", "consume": False}], [SYNC[1] + ASK_BYTES]),
    "busy": ([{"name": "busy", "on": "any", "retry_after": 0.25, "next": 2}], [SYNC[1] + ASK_BYTES + SYNC[1]]),
    "dropped": ([{"name": "drop_before", "next": 1}], [SYNC[1], ASK_BYTES]),
    "answer lost": ([{"name": "drop_after", "next": 1}], [SYNC[1], ASK_BYTES]),
    "cut": ([{"name": "cut_reply"}], [SYNC[1]]),
    "close after": ([{"name": "close_after", "on": "any"}], [ASK_BYTES]),
    "swallowed": ([{"name": "swallow", "next": 1}], [SYNC[1] + SYNC[2]]),
    "twice, first": ([{"name": "duplicate", "answer": "first"}], [SYNC[1]]),
    "twice, second": ([{"name": "duplicate"}], [SYNC[1]]),
    "http 1.0": ([{"name": "http10", "length": False}], [SYNC[1]]),
    "http 1.0, length": ([{"name": "http10"}], [SYNC[1]]),
    "foreign write": ([{"name": "foreign_write", "next": 1, "count": 2}], [SYNC[3] + SYNC[1]]),
    "restored": ([{"name": "restore", "on": "ask", "next": 1}], [SYNC[1] + ASK_BYTES + SYNC[1]]),
    "banned": ([{"name": "ban", "next": 1, "seconds": 640}], [SYNC[1]]),
    "says": ([{"name": "say", "on": "any", "shift": -1, "fields": {"more": "é"}}], [SYNC[1] + ASK_BYTES]),
    "says of an error": ([{"name": "say", "status": 400, "fields": {"retry_after": 1.5}}], [SYNC[3] + SYNC[1]]),
    **{f"garbage, {kind}": ([{"name": "garbage", "reply": kind, "next": 1}], [SYNC[1] + ASK_BYTES])
       for kind in ("bytes", "not_json", "status", "other_nonce")},
    **{f"answers, {nonce}": ([{"name": "answer", "status": 418, "body": "tea", "nonce": nonce}], [SYNC[1] + ASK_BYTES])
       for nonce in ("applied", "used", "unused")},
}  # fmt: skip


def replies(faults: list[dict[str, Any]], sent: list[bytes], **config: Any) -> list[str]:
    """What each connection gets, until it ends."""
    with Simulator(Config(latency_ms=0, **config)) as simulator:
        for fault in faults:
            simulator.control(lambda controls, fault=fault: controls.switch_on(fault))  # type: ignore[misc]
        return [_reply(simulator.port, data) for data in sent]


def _reply(port: int, data: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = bytearray()
        while piece := sock.recv(4096):
            got += piece
    return got.decode("latin-1")


def refused(**config: Any) -> list[str]:
    """What the second of two connections gets."""
    with (
        Simulator(Config(latency_ms=0, **config)) as simulator,
        socket.create_connection(("127.0.0.1", simulator.port)),
    ):
        while not simulator.control(Controls.stats)["connections"]:
            pass
        return [_reply(simulator.port, b"")]


def all_replies() -> dict[str, list[str]]:
    return {"refused": refused(), **{name: replies(*case) for name, case in CASES.items()}}


@pytest.mark.parametrize("name", ["refused", *CASES])
def test_an_answer_has_the_bytes_that_it_always_had(name: str) -> None:
    said = refused() if name == "refused" else replies(*CASES[name])
    assert said == json.loads(FILE.read_text())[name]


def test_credentials_are_refused_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("Bearer sesame")
    (said,) = replies([], [ASK_BYTES + SYNC[1]], authorization_file=tmp_path / "auth")
    one = "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\nno valid credentials"
    assert said == one * 2


if __name__ == "__main__":
    FILE.write_text(json.dumps(all_replies(), indent=1) + "\n")
