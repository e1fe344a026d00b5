"""A worker whose log nobody reads any more: a stopped collector, `| less`. It sends, and it ends when it is told to."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from oldhost_sync.stack.processes import Child, StartedProcess
from tests.faults.product import ROOT, Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

PIPE_BYTES = 4096


class Unread(Child):
    """Its stderr is a pipe that is full from the beginning."""

    def launch(self, log: IO[bytes]) -> StartedProcess:
        self.out, full = os.pipe()
        fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(full, b"x" * PIPE_BYTES)
        process = subprocess.Popen(list(self.argv), stdout=log, stderr=full, env=dict(self.env or {}), cwd=self.folder)
        os.close(full)
        return process


@pytest.fixture
def worker(product: Product) -> Unread:
    environment = product.environment(product.settings) | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "oldhost_sync.cli", "worker"]
    unread = Unread("worker", argv, product.folder / "worker.log", environment, folder=ROOT)
    product.children["worker"] = unread
    unread.start()
    return unread


def test_it_sends_opens_its_session_again_and_ends_at_sigterm(product: Product, worker: Unread) -> None:
    product.start("relay")
    product.start_api()
    product.api.change("A-1", "booking_created", {"guest": 1})
    product.wait_for("the first operation", lambda: "APPLIED" in product.fates().values(), 60)
    product.admin("POST", "/actions/close-connection", {})
    for number in range(3):
        product.api.change(f"B-{number}", "booking_created", {"guest": number})
    product.wait_for("all of them", lambda: list(product.fates().values()) == ["APPLIED"] * 4, 60)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_a_role_that_fails_ends(tmp_path: Path) -> None:
    """A supervisor starts it again only then."""
    argv = [sys.executable, "-m", "oldhost_sync.cli", "worker"]
    unread = Unread("worker", argv, tmp_path / "worker.log", {"PYTHONPATH": str(ROOT)}, folder=tmp_path)
    unread.start()
    assert unread.wait(30) == 1
