"""Probes of relay and worker tell of a server that hangs within seconds, and that nothing is wrong with the process."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oldhost_sync.probes.health import ANSWER_SECONDS_MAX, NEEDS_POLL_SECONDS
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# A pause, a look in vain, and as much again for a busy machine.
TOLD_WITHIN_SECONDS = 2 * (NEEDS_POLL_SECONDS + ANSWER_SECONDS_MAX)


def probed(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_worker_and_relay_tell_of_a_frozen_server_and_live_on(
    product: Product, temporal: EmbeddedTemporal, mariadb_server: PrivateMariaDB
) -> None:
    ports = {role: free_port() for role in ("relay", "worker")}
    for role, port in ports.items():
        product.start(role, metrics_bind=f"127.0.0.1:{port}")

    def all_are(status: int) -> bool:
        return all(probed(port, "/readyz")[0] == status for port in ports.values())

    product.wait_for("both ready", lambda: all_are(200), 40)
    for need, pid in (("temporal", temporal.child.pid), ("database", mariadb_server.child.pid)):
        with frozen(pid):
            product.wait_for(f"both tell of the {need}", lambda: all_are(503), TOLD_WITHIN_SECONDS)
            for role, port in ports.items():
                assert probed(port, "/readyz")[1]["checks"][need] != "ok", role
                assert probed(port, "/healthz")[0] == 200, role
        product.wait_for(f"both ready with the {need} again", lambda: all_are(200), 40)
