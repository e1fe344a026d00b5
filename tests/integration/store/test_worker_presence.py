"""Which workers are at work: as they tell of themselves, until they leave or are silent."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.read.sessions import WORKERS_SHOWN, Process, read_relay, read_workers
from oldhost_sync.store.workers import REPORT_SECONDS, SILENT_SECONDS_MAX, Known, Other, WorkerPresence
from tests.integration.store.writing import HOST, change_sql

pytestmark = pytest.mark.mariadb


def shown(engine: Engine, host: str = HOST) -> list[tuple[str, bool, bool]]:
    with engine.connect() as connection:
        return [(each.name, each.at_work, each.has_left) for each in read_workers(connection, host)]


def silent(engine: Engine, seconds: float, name: str) -> None:
    us = round(seconds * 1e6)
    change_sql(
        engine,
        f"UPDATE workers SET seen_at = UTC_TIMESTAMP(6) - INTERVAL {us} MICROSECOND WHERE name = '{name}'",
    )


def test_a_worker_that_says_so_is_at_work_for_each_of_its_hosts(engine: Engine) -> None:
    WorkerPresence(engine, (HOST, "other"), "w1").begin()
    assert shown(engine) == shown(engine, "other") == [("w1", True, False)]
    assert shown(engine, "nobody's") == []


def test_one_that_is_silent_is_not_at_work_until_it_speaks_again(engine: Engine) -> None:
    presence = WorkerPresence(engine, (HOST,), "w1")
    presence.begin()
    silent(engine, SILENT_SECONDS_MAX + 1, "w1")
    assert shown(engine) == [("w1", False, False)]
    presence.report()
    assert shown(engine) == [("w1", True, False)]


def test_two_in_a_row_may_be_late_before_a_worker_counts_as_silent() -> None:
    assert SILENT_SECONDS_MAX > 2 * REPORT_SECONDS


def test_one_that_has_left_says_so(engine: Engine) -> None:
    presence = WorkerPresence(engine, (HOST,), "w1")
    presence.begin()
    presence.leave()
    assert shown(engine) == [("w1", False, True)]


def test_those_at_work_come_first_and_those_gone_for_a_day_are_forgotten(engine: Engine) -> None:
    for name in ("gone", "killed", "other"):
        WorkerPresence(engine, (HOST,), name).begin()
    silent(engine, 90_000, "gone")
    silent(engine, 3_600, "killed")
    WorkerPresence(engine, (HOST,), "new").begin()
    assert [name for name, _, _ in shown(engine)] == ["new", "other", "killed"]


def test_however_many_there_were_a_page_has_some(engine: Engine) -> None:
    for number in range(WORKERS_SHOWN + 3):
        WorkerPresence(engine, (HOST,), f"w{number}").report()
    assert len(shown(engine)) == WORKERS_SHOWN


def test_a_worker_reads_what_those_at_work_know(engine: Engine) -> None:
    own, newer = WorkerPresence(engine, (HOST, "other"), "own", 6), WorkerPresence(engine, (HOST,), "newer", 8)
    assert own.known() == {}, "it has not told of itself"
    own.begin()
    newer.begin()
    assert own.known() == {HOST: Known(6, 8), "other": Known(6, 6)}
    newer.leave()
    assert own.known()[HOST] == Known(6, 6)
    newer.report()
    silent(engine, SILENT_SECONDS_MAX + 1, "newer")
    assert own.known()[HOST] == Known(6, 6)
    silent(engine, SILENT_SECONDS_MAX + 1, "own")
    assert own.known() == {}


def test_one_that_was_last_heard_of_in_the_future_is_not_at_work(engine: Engine) -> None:
    """It was killed, and then the database's clock was set back by two hours."""
    own, killed = WorkerPresence(engine, (HOST,), "own", 6), WorkerPresence(engine, (HOST,), "killed", 8)
    own.begin()
    killed.begin()
    silent(engine, -7200, "killed")
    assert own.known() == {HOST: Known(6, 6)}
    with engine.connect() as connection:
        assert own.others(connection) == {}
    assert [name for name, at_work, _ in shown(engine) if at_work] == ["own"]


def test_the_others_at_work_are_those_of_the_hosts_that_a_worker_serves(engine: Engine) -> None:
    own = WorkerPresence(engine, (HOST, "other"), "own")
    for name, hosts in (("own", [HOST]), ("both", ["other", HOST]), ("left", [HOST]), ("mute", [HOST]), ("far", ["x"])):
        WorkerPresence(engine, hosts, name).begin()
    WorkerPresence(engine, (HOST,), "left").leave()
    silent(engine, SILENT_SECONDS_MAX + 1, "mute")
    with engine.connect() as connection:
        assert own.others(connection) == {"both": Other([HOST, "other"], holds_lock=False)}


def test_a_host_is_taken_by_the_worker_that_opened_its_last_session(engine: Engine) -> None:
    own = WorkerPresence(engine, (HOST, "other"), "own")
    for host, owner in ((HOST, "w1"), ("other", "w2"), ("x", "w1")):
        change_sql(engine, f"INSERT INTO nonce_ledger (host, epoch, owner) VALUES ('{host}', 1, '{owner}')")
    with engine.connect() as connection:
        assert [own.taken_by(connection, name) for name in ("w1", "w2", "w3")] == [[HOST], ["other"], []]


def test_a_database_that_is_away_disturbs_no_worker(database_url: str) -> None:
    engine = create_engine(database_url.rpartition("@")[0] + "@127.0.0.1:1/none")
    presence = WorkerPresence(engine, (HOST,), "w1")
    presence.begin()
    presence.report()
    presence.leave()


def test_a_relay_is_at_work_while_its_lease_holds(engine: Engine) -> None:
    def relay() -> Process | None:
        with engine.connect() as connection:
            return read_relay(connection, HOST)

    assert relay() is None
    change_sql(
        engine,
        "INSERT INTO relay_lease (host, owner, expires_at) "
        f"VALUES ('{HOST}', 'r', UTC_TIMESTAMP(6) + INTERVAL 9 SECOND)",
    )
    found = relay()
    assert found is not None
    assert (found.name, found.at_work) == ("r", True)
    change_sql(engine, "UPDATE relay_lease SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    found = relay()
    assert found is not None
    assert not found.at_work
