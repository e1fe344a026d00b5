"""Whoever asks for a host's state is told the same word and the same cause, at every door."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.api.writer_link import problem_of
from oldhost_sync.cli.main import run
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.writer_client import Cause, WriterError, WriterUnavailable
from tests.integration.api.conftest import HOST, a_client
from tests.integration.console.conftest import STATUS, FullWriter
from tests.integration.console.test_lookups import halt, run_sql

pytestmark = pytest.mark.mariadb


class BehindTemporal:
    """The writer as the command line asks it: it raises the errors that the API's link turns into problems."""

    def __init__(self, writer: FullWriter, error: WriterError | None) -> None:
        self._writer = writer
        self._error = error

    async def query(self, name: str, *arguments: object) -> Any:
        if self._error is not None:
            raise self._error
        return await self._writer.query(name, *arguments)


def stall(engine: Engine) -> None:
    message = "No change has reached OldHost for 60 s although some could be sent (connection: refused)."
    run_in_transaction(engine, lambda c: raise_alert(c, HOST, "no-progress", "critical", message))


def ban(engine: Engine) -> None:
    columns = "host, epoch, next_nonce, last_applied_nonce, banned_until"
    values = ":host, 4, 9, 8, UTC_TIMESTAMP(6) + INTERVAL 10 MINUTE"
    run_sql(engine, f"INSERT INTO nonce_ledger ({columns}) VALUES ({values})", host=HOST)
    run_in_transaction(engine, lambda c: raise_alert(c, HOST, "ban", "critical", "OldHost bans us"))


def halt_and_decide(engine: Engine) -> None:
    halt(engine)
    run_in_transaction(engine, lambda c: raise_alert(c, HOST, "halted", "critical", "another wrote", dedupe_key="halt"))
    run_in_transaction(engine, lambda c: decide(c, OperatorAct(HOST, "resolve", "anna", "why", mode="adopt")))


def nothing(_engine: Engine) -> None:
    pass


IDLE = {"waiting": 0, "in_flight": 0}
LATE = {"forecast": STATUS["forecast"] | {"breaks_emergency": True}}
PAUSED = {"state": "PAUSED", "paused": {"operator": "anna", "reason": "quiet"}}
HALTED = {"state": "HALTED", "breaker": {"state": "HALTED", "reason": "another wrote", "remaining_ms": 0}}
BANNED = {"state": "BANNED", "breaker": {"state": "OPEN", "reason": "", "remaining_ms": 600_000}}
CONNECTING = {"state": "CONNECTING", "session": STATUS["session"] | {"phase": "pausing", "waiting_for": "connection"}}
NO_WORKER = WriterUnavailable(HOST, Cause.NO_WORKER, "no worker takes its tasks")
NO_WRITER = WriterUnavailable(HOST, Cause.NO_WRITER)
STAGES: dict[str, tuple[str, Callable[[Engine], None], dict[str, Any], WriterError | None]] = {
    "it sends": ("SENDING", nothing, {}, None),
    "nothing waits": ("SENDING", nothing, IDLE, None),
    "emergencies will be late": ("AT RISK", nothing, LATE, None),
    "a pause": ("PAUSED", nothing, PAUSED, None),
    "a halt": ("HALTED", halt, HALTED, None),
    "a halt that is decided": ("HALTED", halt_and_decide, HALTED, None),
    "a ban": ("BANNED", ban, BANNED, None),
    "it can't connect": ("WAITING", nothing, CONNECTING, None),
    "an open session that brings nothing through": ("WAITING", stall, {}, None),
    "no worker": ("NO WRITER", nothing, {}, NO_WORKER),
    "no worker, and a halt": ("NO WRITER", halt, {}, NO_WORKER),
    "no writer": ("NO WRITER", nothing, {}, NO_WRITER),
}


@pytest.mark.parametrize("stage", STAGES)
def test_all_doors_tell_one_state(
    stage: str,
    engine: Engine,
    database_url: str,
    writer: FullWriter,
    address: str,
    anna: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    word, happen, status, error = STAGES[stage]
    happen(engine)
    writer.status |= status
    writer.problem = None if error is None else problem_of(error)
    monkeypatch.setattr("oldhost_sync.cli.status.client", lambda _: BehindTemporal(writer, error))
    monkeypatch.setattr("oldhost_sync.cli.status.link", lambda *_: writer)
    monkeypatch.setenv("SYNC_DATABASE_URL", database_url)
    monkeypatch.setenv("SYNC_HOST", HOST)

    with a_client(address, "anna") as api:
        told = api.get("/api/situation").json()
        (listed,) = api.get("/api/hosts").json()["hosts"]
    said = told["word"], told["why"]
    assert said[0] == word
    assert (listed["state"], listed["why"]) == said
    for path, begins in ((PREFIX, '<p class="banner-why">'), (f"{PREFIX}/hosts", f"<td>{word}</td>\n  <td>")):
        page = anna.get(path).text
        assert begins in page
        assert plainly(page.partition(begins)[2].partition("</")[0]) == plainly(said[1])
    situation = printed(capsys, "status")["situation"]
    assert (situation["word"], situation["why"], situation["next_step"]) == (*said, told["next_step"])
    (line,) = printed(capsys, "hosts")["hosts"]
    assert (line["state"], line["why"]) == said


def printed(capsys: pytest.CaptureFixture[str], command: str) -> Any:
    """What `command` tells programs; it says on standard error, too, when a part of it is away."""
    run([command, "--json"])
    found = capsys.readouterr()
    assert found.out, found.err
    return json.loads(found.out)


def plainly(html: str) -> str:
    """Its first words, without marks and times, which pages write in their own way."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", html))).strip()[:20]
