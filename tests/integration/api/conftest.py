"""An API on a real MariaDB, with a writer that answers as a test tells it to."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from oldhost_sync.api import planner_process
from oldhost_sync.api.access import Tokens
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem
from oldhost_sync.planner import Answer, Question, Scenario
from oldhost_sync.planner.question import answer
from oldhost_sync.roles.api import configure
from oldhost_sync.settings import ApiToken, Role, Settings
from workflows.messages import OperatorAct

HOST = "oldhost"


@dataclass
class ScriptedWriter:
    """A WriterLink that answers `status` and does every act, or raises `problem`."""

    status: dict[str, Any] = field(default_factory=lambda: {"breaker": {"state": "CLOSED"}})
    problem: Problem | None = None
    outlook: dict[str, Any] | None = None
    acts: list[tuple[str, OperatorAct]] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)

    async def query(self, name: str, *arguments: object) -> Any:
        if self.problem is not None:
            raise self.problem
        return {"status": self.status, "find": {"asked": arguments}, "upcoming": [arguments], "outlook": self.outlook}[
            name
        ]

    async def update(self, name: str, request: OperatorAct) -> str:
        if self.problem is not None:
            raise self.problem
        self.acts.append((name, request))
        return f"{name}: done"

    async def tell(self, name: str, argument: object) -> bool:
        if self.problem is None:
            self.told.append((name, argument))
        return self.problem is None


def a_token(name: str, role: str) -> ApiToken:
    """The token is the name itself."""
    return ApiToken(name, Role(role), hashlib.sha256(name.encode()).hexdigest())


TOKENS = Tokens([a_token("shop", "app"), a_token("kiosk", "app"), a_token("vera", "viewer"), a_token("anna", "ops")])


@pytest.fixture
def writer() -> ScriptedWriter:
    return ScriptedWriter()


@pytest.fixture
def app(database_url: str, writer: ScriptedWriter) -> FastAPI:
    return create_app(Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), writer))


@contextlib.contextmanager
def served(app: FastAPI, **given: Any) -> Iterator[str]:
    """The application behind a real socket, as `serve.run` sets it up; gives its address. `given`: settings."""
    settings = Settings(api_bind="127.0.0.1:0", **given)
    server = uvicorn.Server(configure(app, settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 10
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended before it began"
            assert time.monotonic() < deadline
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:  # also of a test that failed: the process would wait for this thread for ever
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    with served(app) as address:
        yield address


def a_client(address: str, token: str | None = None) -> httpx.Client:
    """Ask as the owner of `token`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(
        base_url=address,
        headers=headers,
        timeout=30,
        trust_env=False,
        verify=False,
        event_hooks={"response": [tell_of_a_failure]},
    )


def tell_of_a_failure(answer: httpx.Response) -> None:
    """So that a test that did not ask for it shows what the server said."""
    if answer.is_server_error:
        print(answer.request.method, answer.request.url, answer.read().decode())


@pytest.fixture
def one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan has the answer of a small one: the tests are about requests, and a large one takes seconds of CPU."""
    small = Question(Scenario(changes=20, units=4, bursts=0, duration_s=20))

    async def play(question: Question) -> Answer:
        return answer(small)

    monkeypatch.setattr(planner_process, "_played", play)


@pytest.fixture
def anyone(address: str) -> Iterator[httpx.Client]:
    """A client without a token."""
    with a_client(address) as client:
        yield client


@pytest.fixture
def shop(address: str) -> Iterator[httpx.Client]:
    """An application's client."""
    with a_client(address, "shop") as client:
        yield client


@pytest.fixture
def kiosk(address: str) -> Iterator[httpx.Client]:
    """Another application's client."""
    with a_client(address, "kiosk") as client:
        yield client


@pytest.fixture
def vera(address: str) -> Iterator[httpx.Client]:
    """A viewer's client."""
    with a_client(address, "vera") as client:
        yield client


@pytest.fixture
def anna(address: str) -> Iterator[httpx.Client]:
    """An operator's client."""
    with a_client(address, "anna") as client:
        yield client
