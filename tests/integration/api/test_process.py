"""The API as a process: SIGTERM lets what is under way end, and says nothing of anybody's data."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.stack.machine import pick_port
from tests.integration.api.conftest import a_client, a_token

ROOT = Path(__file__).parents[3]
PROGRAM = (
    "import logging; logging.basicConfig(level=logging.DEBUG)\n"
    "from oldhost_sync.roles.api import run\n"
    "from oldhost_sync.settings import load_settings\n"
    "run(load_settings())"
)


@pytest.mark.processes
def test_sigterm_answers_what_is_under_way_and_ends_in_order(database_url: str, engine: Engine, tmp_path: Path) -> None:
    port = pick_port(None, "the API")
    token = a_token("shop", "app")
    settings = {
        "SYNC_DATABASE_URL": database_url,
        "SYNC_API_BIND": f"127.0.0.1:{port}",
        "SYNC_API_TOKENS": f"{token.name}:{token.role}:{token.sha256_hex}",
    }
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(address)
        for odd in (
            b"\x16\x03\x01",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                stranger.sendall(odd)
                assert stranger.recv(1_000).startswith(b"HTTP/1.1")
        answers: list[Any] = []
        with a_client(address, "shop") as client, engine.connect() as connection:
            client.post("/api/units/12B/status", json={"status": "a secret"})
            connection.execute(text("SELECT * FROM units FOR UPDATE"))
            write = threading.Thread(
                target=lambda: answers.append(client.post("/api/units/12B/status", json={"status": "Dirty"}))
            )
            write.start()
            wait_until_someone_waits(engine)
            process.send_signal(signal.SIGTERM)
            connection.rollback()
            write.join(10)
        assert [answer.status_code for answer in answers] == [202]
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert "secret" not in said
    assert "12B" not in said
    assert "WARNING" not in said  # what strangers can make it say as often as they like


def wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + 20
    with a_client(address) as client:
        while time.monotonic() < deadline:
            try:
                if client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                threading.Event().wait(0.05)
    raise AssertionError("the API did not become ready")


def wait_until_someone_waits(engine: Engine) -> None:
    """Until a statement of the API stands behind the lock."""
    deadline = time.monotonic() + 10
    waiting = text("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO units%'")
    with engine.connect() as connection:
        while not connection.execute(waiting).scalar():
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
