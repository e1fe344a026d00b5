"""`oldhost-sync up` as a user meets it: everything comes up, a change arrives, nothing stays
behind, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.conftest import ROOT
from tests.integration.session.stage import simulator

pytestmark = [pytest.mark.processes, pytest.mark.mariadb, pytest.mark.temporal]

SECONDS_MAX = 60.0
# Little to wait for after a kill.
QUICK = {"SYNC_API_BIND": "127.0.0.1:0", "SYNC_SETTLE_SECONDS": "4", "SYNC_REQUEST_TIMEOUT_SECONDS": "1"}
FREE_PORTS = [f"--{name}-port=0" for name in ("mariadb", "temporal", "temporal-ui", "oldhost", "oldhost-admin")]


def until(what: Callable[[], Any], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def users_folder(parent: Path) -> Path:
    """Where a user may stand: a Temporal project with files of the same names as ours."""
    folder = parent / "project"
    for name in ("workflows", "activities"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").touch()
    (folder / "starter.py").write_text("raise SystemExit('this is the user's')")
    return folder


class Up:
    """One `up` as a process of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._said = folder.with_suffix(".said")
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oldhost_sync.cli", "up", f"--folder={folder}", "--latency-ms=5", *FREE_PORTS],
                cwd=users_folder(folder.parent),
                env={**os.environ, "PYTHONPATH": str(ROOT), **QUICK, **environment},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._said.read_text()

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.said()
        return "OldHost Sync is up" in self.said()

    def wait_until_up(self) -> Up:
        until(self.is_up, self.said)
        return self

    def end(self, signum: signal.Signals) -> int:
        self.process.send_signal(signum)
        return self.process.wait(SECONDS_MAX)

    def setting(self, name: str) -> str:
        lines = (self.folder / "up.env").read_text().splitlines()
        return next(line.partition("=")[2].strip("'") for line in lines if line.startswith(f"{name}="))

    def accept(self, entity_id: str) -> str:
        """Record a change that is sent at once; returns its key."""
        token = json.loads((self.folder / "tokens.json").read_text())["app"]
        change = {
            "entity_type": "unit",
            "entity_id": entity_id,
            "event_type": "door_code_changed",
            "payload": {"code": "1234"},
        }
        request = urllib.request.Request(
            f"http://{self.setting('SYNC_API_BIND')}/api/changes",
            data=json.dumps(change).encode(),
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                "Idempotency-Key": f"key-{entity_id}",
            },
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 202
        return f"key-{entity_id}"

    def fate(self, key: str) -> str:
        """The state of a change, as the API tells it."""
        token = json.loads((self.folder / "tokens.json").read_text())["viewer"]
        url = f"http://{self.setting('SYNC_API_BIND')}/api/changes/{key}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["state"])

    def arrived(self) -> str:
        """All that OldHost keeps, as text."""
        state = self.folder / "oldhost.json"
        return state.read_text() if state.exists() else ""


def booked(example: str) -> bool:
    """Whether the example application has taken a booking; nothing waits for its start."""
    body = json.dumps({"unit": "A-101", "guest": "Kim"}).encode()
    request = urllib.request.Request(f"{example}/bookings", data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 201)
    except OSError:
        return False


def living(folder: Path) -> list[str]:
    """Command lines and working folders of all processes that have to do with `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command or f"STACK_UNDER_TEST={folder}\0" in environment:
            found.append(f"{entry.name} {command}")
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `up`s that are gone after the test, whatever happened."""
    started: list[Up] = []

    def start_one(folder: Path = tmp_path / "var", **environment: str) -> Up:
        started.append(Up(folder, STACK_UNDER_TEST=str(folder), **environment))
        return started[-1]

    yield start_one
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def test_a_change_goes_all_the_way_and_ctrl_c_leaves_no_process(start: Callable[..., Up]) -> None:
    up = start().wait_until_up()
    key = up.accept("u-1")
    until(lambda: key in up.arrived(), up.said)
    example = up.setting("EXAMPLE_URL")
    assert f"{example}/docs" in up.said()
    until(lambda: booked(example), up.said)
    until(lambda: '"booking-1"' in up.arrived(), up.said)

    second = start(up.folder)
    assert second.process.wait(SECONDS_MAX) == 1
    assert f"is in use by another `oldhost-sync up` (process {up.process.pid})" in second.said()

    assert up.end(signal.SIGINT) == 0
    assert living(up.folder) == []


def test_kill_9_leaves_no_process_and_started_again_it_goes_on(start: Callable[..., Up]) -> None:
    up = start().wait_until_up()
    key = up.accept("u-1")
    token = (up.folder / "tokens.json").read_text()
    up.end(signal.SIGKILL)
    until(lambda: not living(up.folder), lambda: str(living(up.folder)))

    again = start(up.folder).wait_until_up()
    until(lambda: key in again.arrived(), again.said)
    later = again.accept("u-2")
    until(lambda: later in again.arrived(), again.said)
    assert again.arrived().count(key) == again.arrived().count(later)
    assert (up.folder / "tokens.json").read_text() == token
    assert again.end(signal.SIGTERM) == 0


def test_told_to_end_while_starting_it_leaves_no_process(start: Callable[..., Up]) -> None:
    up = start()
    until(lambda: "Starting Temporal" in up.said(), up.said)
    up.end(signal.SIGTERM)
    assert living(up.folder) == []


def test_a_taken_port_is_said_before_anything_is_started(start: Callable[..., Up]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        up = start(SYNC_API_BIND=f"127.0.0.1:{port}")
        assert up.process.wait(SECONDS_MAX) == 1
    assert f"port {port} on 127.0.0.1 is taken, but is needed for the API (SYNC_API_BIND)" in up.said()
    assert "Starting" not in up.said()


@pytest.mark.parametrize("given", [("MariaDB", "the OldHost simulator"), ("Temporal",)], ids=" and ".join)
def test_the_parts_whose_addresses_are_set_are_left_out(
    given: tuple[str, ...], start: Callable[..., Up], database: DatabaseUrls, temporal_dev_server: EmbeddedTemporal
) -> None:
    with simulator() as oldhost:
        addresses = {
            "MariaDB": {"SYNC_DATABASE_URL": database.migration},
            "Temporal": {"TEMPORAL_ADDRESS": temporal_dev_server.address, "SYNC_HOST": "given"},
            "the OldHost simulator": {"SYNC_OLDHOST_URL": oldhost.url},
        }
        up = start(**{name: value for part in given for name, value in addresses[part].items()}).wait_until_up()
        embedded = [part for part in addresses if f"Starting {part}" in up.said()]
        assert embedded == [part for part in addresses if part not in given]
        key = up.accept("u-1")
        until(lambda: up.fate(key) == "APPLIED", up.said)
        assert up.end(signal.SIGINT) == 0
