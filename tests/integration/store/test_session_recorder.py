"""What people are told of sessions: written down in order, late where the database is away, and never in the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from oldhost_sync.store import workers
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.read.sessions import Sessions, read_sessions
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.workers import SessionRecorder

pytestmark = pytest.mark.mariadb
HOST = "oldhost"


class Clock:
    """Seconds, set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(engine: Engine, clock: Clock) -> SessionRecorder:
    return SessionRecorder(engine, clock)


def told(engine: Engine) -> Sessions:
    with engine.connect() as connection:
        return read_sessions(connection, HOST)


def test_a_session_is_told_with_its_owner_its_end_and_its_lost_replies(
    recorder: SessionRecorder, engine: Engine
) -> None:
    recorder.opened(HOST, 1, "worker-a", 501)
    recorder.lost_reply(HOST, 1)
    recorder.ended(HOST, 1, "no answer within 5 s")
    recorder.write()
    (session,) = told(engine).sessions
    assert (session.epoch, session.owner, session.opened_at_nonce) == (1, "worker-a", 501)
    assert (session.ended_because, session.lost_replies) == ("no answer within 5 s", 1)


def test_of_several_reasons_the_first_one_stays(recorder: SessionRecorder, engine: Engine) -> None:
    recorder.opened(HOST, 1, "worker-a", 501)
    recorder.ended(HOST, 1, "OldHost bans us")
    recorder.ended(HOST, 1, "this worker is leaving")
    recorder.write()
    assert told(engine).sessions[0].ended_because == "OldHost bans us"


def test_what_is_written_late_has_the_time_when_it_happened(
    recorder: SessionRecorder, engine: Engine, clock: Clock
) -> None:
    recorder.opened(HOST, 1, "worker-a", 501)
    clock.now += 60
    recorder.ended(HOST, 1, "closed")
    recorder.write()
    (session,) = told(engine).sessions
    assert session.opened_at is not None
    assert session.ended_at is not None
    assert timedelta(seconds=59) < session.ended_at - session.opened_at < timedelta(seconds=65)


def test_who_finds_another_one_writing_does_not_wait_and_its_lines_are_written_too(
    recorder: SessionRecorder, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the simulation the two are on one thread, which would wait for itself."""
    inner: list[str] = []

    def slow(*given: Any, **named: Any) -> Any:
        if not inner:
            inner.append("a second one comes while the first is in the database")
            recorder.ended(HOST, 1, "closed")
            recorder.write()
        return run_in_transaction(*given, **named)

    monkeypatch.setattr(workers, "run_in_transaction", slow)
    recorder.opened(HOST, 1, "worker-a", 501)
    recorder.write()
    (session,) = told(engine).sessions
    assert (inner != [], session.ended_because) == (True, "closed")


def test_what_the_database_does_not_take_is_written_at_the_next_call(
    recorder: SessionRecorder, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("away")

    recorder.opened(HOST, 1, "worker-a", 501)
    with monkeypatch.context() as patched:
        patched.setattr(workers, "run_in_transaction", away)
        recorder.write()
    assert told(engine).sessions == []
    recorder.write()
    assert [each.epoch for each in told(engine).sessions] == [1]


def test_only_the_newest_sessions_of_a_host_are_kept(
    recorder: SessionRecorder, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SESSIONS_KEPT", 2)
    recorder.opened("another", 1, "worker-a", 1)
    for epoch in range(1, 5):
        recorder.opened(HOST, epoch, "worker-a", 501)
    recorder.write()
    assert [each.epoch for each in told(engine).sessions] == [4, 3, 2]
    with engine.connect() as connection:
        assert [each.epoch for each in read_sessions(connection, "another").sessions] == [1]


def test_a_session_whose_worker_told_no_end_is_shown_with_the_beginning_of_the_next(
    recorder: SessionRecorder, engine: Engine, clock: Clock
) -> None:
    recorder.opened(HOST, 1, "killed", 501)
    clock.now += 30
    recorder.opened(HOST, 2, "worker-b", 520)
    recorder.write()
    newest, killed = told(engine).sessions
    assert killed.ended_at is None
    assert killed.successor_at == newest.opened_at


def test_the_last_day_is_counted(recorder: SessionRecorder, engine: Engine, clock: Clock) -> None:
    recorder.opened(HOST, 1, "worker-a", 501)
    recorder.lost_reply(HOST, 1)
    clock.now += 25 * 3600
    recorder.opened(HOST, 2, "worker-a", 520)
    recorder.lost_reply(HOST, 2)
    recorder.lost_reply(HOST, 2)
    recorder.write()
    found = told(engine)
    assert (found.sessions_of_a_day, found.lost_replies_of_a_day) == (1, 2)
