"""The console on a real MariaDB, with a writer that answers as a test tells it to, and people who are signed in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from oldhost_sync.api import situation_reader
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.console.app import ConsoleOptions, mount_console
from oldhost_sync.console.paths import SIGN_IN
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, address, one_plan, tell_of_a_failure

__all__ = ["address", "one_plan"]  # fixtures of the API's tests

# As workflows/status_report.py gives it.
STATUS: dict[str, Any] = {
    "host": HOST,
    "state": "SENDING",
    "paused": None,
    "breaker": {"state": "CLOSED", "reason": "", "remaining_ms": 0},
    "session": {"phase": "open", "epoch": 3, "task_queue": "q", "opened_at_nonce": 4705, "waiting_for": ""},
    "lanes": {
        "EMERGENCY": {"depth": 2, "oldest_age_ms": 1_200},
        "TXN": {"depth": 310, "oldest_age_ms": 1_260_000},
        "LWW": {"depth": 1_905, "oldest_age_ms": 2_400_000},
    },
    "debounced": 412,
    "waiting": 2_629,
    "held": 3,
    "dead_letters": 1,
    "in_flight": 16,
    "in_doubt": 1,
    "rates": {"arrivals_per_s": 1.25, "applied_per_s": 2.47, "service_ms": 401.0},
    "forecast": {
        "drain_ms": 1_310_000,
        "oldest_age_ms": 3_100_000,
        "emergency_ms": 900,
        "breaks_consistency": False,
        "breaks_emergency": False,
    },
    "counters": {},
}


class FullWriter(ScriptedWriter):
    """Its `upcoming` is a list of changes, as the writer's."""

    async def query(self, name: str, *arguments: object) -> Any:
        answer = await super().query(name, *arguments)
        if name != "upcoming":
            return answer
        change = {"entity_type": "unit", "entity_id": "A-101", "event_type": "checked_in"}
        return [change | {"change_id": n, "priority_class": "LWW" if n % 4 else "TXN"} for n in range(1, 13)]


@pytest.fixture
def writer() -> FullWriter:
    return FullWriter(status=dict(STATUS))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits 2.5 s for MariaDB, and then says so. On a machine with other work a look may take that long."""
    monkeypatch.setattr(situation_reader, "POLL_SECONDS_MAX", 25.0)


def an_app(database_url: str, writer: ScriptedWriter, options: ConsoleOptions | None = None, **more: Any) -> FastAPI:
    dependencies = Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer, **more)
    return create_app(dependencies, lambda app, dependencies: mount_console(app, dependencies, options))


@pytest.fixture
def app(database_url: str, writer: FullWriter) -> FastAPI:
    return an_app(database_url, writer)


@contextmanager
def browser(address: str, token: str | None = None) -> Iterator[httpx.Client]:
    """Keeps cookies and names its origin, as browsers do; signed in by `token`."""
    hooks = {"response": [tell_of_a_failure]}
    headers = {"Origin": address}
    with httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False, event_hooks=hooks) as client:
        if token is not None:
            assert client.post(SIGN_IN, data={"token": token}).status_code == 303
        yield client


@pytest.fixture
def anyone(address: str) -> Iterator[httpx.Client]:
    """Nobody who is signed in."""
    with browser(address) as client:
        yield client


@pytest.fixture
def vera(address: str) -> Iterator[httpx.Client]:
    """A viewer who is signed in."""
    with browser(address, "vera") as client:
        yield client


@pytest.fixture
def anna(address: str) -> Iterator[httpx.Client]:
    """An operator who is signed in."""
    with browser(address, "anna") as client:
        yield client
