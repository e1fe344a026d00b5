"""Level L3: a real MariaDB fails each kind of transaction in every way it has; it happens wholly
and once, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pymysql
import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.oldhost.errors import Fenced, LedgerUnavailable
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.errors import RETRIABLE_ERRORS, CommitUncertain, DatabaseUnavailable, error_code
from tests.faults import transactions
from tests.faults.database_proxy import Action, DatabaseProxy
from tests.faults.product import connect_database
from tests.integration.store.writing import LOCK_WAITS, wait_until

pytestmark = [pytest.mark.mariadb, pytest.mark.timeout(60)]

LOST = (LedgerUnavailable, DatabaseUnavailable, CommitUncertain)
each_transaction = pytest.mark.parametrize("name", transactions.NAMES)
# An operator's act waits for no row behind the ledger's, so nobody can be in its way there.
each_that_waits = pytest.mark.parametrize("name", [name for name in transactions.NAMES if name != "decide"])
Rival = pymysql.cursors.DictCursor


@pytest.fixture
def rival(database: DatabaseUrls) -> Iterator[Rival]:
    """Another session, in a transaction of its own that is heavier than the product's: in a deadlock it survives."""
    with contextlib.closing(connect_database(database.migration)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE ballast (id INT PRIMARY KEY) ENGINE=InnoDB")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO ballast SELECT seq FROM seq_1_to_200")
        yield cursor


def waiting(server: EmbeddedMariaDB) -> list[int]:
    """The connections that wait for another one's lock."""
    with server._root() as root:
        root.execute(LOCK_WAITS)
        return [row[0] for row in root.fetchall()]


@contextlib.contextmanager
def under_way(act: transactions.Transaction) -> Iterator[Future[object]]:
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(act.act)


@contextlib.contextmanager
def conflicts(engine: Engine) -> Iterator[list[int]]:
    """The numbers of the conflicts that the engine's sessions were told of."""
    from sqlalchemy import event

    seen: list[int] = []

    def note(context: object) -> None:
        code = error_code(context.original_exception)  # type: ignore[attr-defined]
        if code in RETRIABLE_ERRORS:
            seen.append(code)

    event.listen(engine, "handle_error", note)
    yield seen
    event.remove(engine, "handle_error", note)


@each_that_waits
def test_a_deadlock_repeats_the_whole_transaction(
    name: str, hurt: Engine, engine: Engine, rival: Rival, mariadb_server: EmbeddedMariaDB
) -> None:
    act = transactions.make(name, hurt, engine)
    rival.execute(act.late)
    with conflicts(hurt) as seen, under_way(act) as running:
        wait_until(lambda: bool(waiting(mariadb_server)), "the product to wait for the rival")
        rival.execute(act.early)  # and now each waits for the other
        rival.execute("ROLLBACK")
        running.result(20)
    assert seen == [1213]
    assert act.done() == 1


@each_transaction
def test_a_lock_wait_that_is_too_long_repeats_the_whole_transaction(
    name: str, hurt: Engine, engine: Engine, rival: Rival
) -> None:
    act = transactions.make(name, hurt, engine)
    rival.execute(act.late)
    with conflicts(hurt) as seen, under_way(act) as running:
        wait_until(lambda: bool(seen), "the first wait to be too long")
        rival.execute("ROLLBACK")
        running.result(20)
    assert set(seen) == {1205}
    assert act.done() == 1


@each_that_waits
def test_a_killed_connection_leaves_nothing_half_done(
    name: str, hurt: Engine, engine: Engine, rival: Rival, mariadb_server: EmbeddedMariaDB
) -> None:
    act = transactions.make(name, hurt, engine)
    rival.execute(act.late)
    with under_way(act) as running:
        wait_until(lambda: bool(waiting(mariadb_server)), "the product to wait for the rival")
        (thread_id,) = waiting(mariadb_server)
        with mariadb_server._root() as root:
            root.execute(f"KILL {thread_id}")
        with pytest.raises(LOST):
            running.result(20)
    rival.execute("ROLLBACK")
    assert act.done() == 0
    act.again()
    assert act.done() == 1


@each_transaction
@pytest.mark.parametrize(("cut", "done"), [(Action.CUT_BEFORE, 0), (Action.CUT_AFTER, 1)])
def test_a_connection_cut_at_the_commit_is_found_out_and_nothing_happens_twice(
    name: str, hurt: Engine, engine: Engine, proxy: DatabaseProxy, cut: Action, done: int
) -> None:
    """Before the commit has arrived nothing is left, after it everything."""
    act = transactions.make(name, hurt, engine)
    trap = proxy.set_trap(cut, act.commit, within=act.within)
    with pytest.raises(LOST):
        act.act()
    trap.wait()
    assert act.done() == done
    act.again()
    assert act.done() == 1


@pytest.mark.parametrize("name", ["reserve", "advance"])
def test_a_packet_whose_answer_is_lost_may_be_committed(
    name: str, hurt: Engine, engine: Engine, proxy: DatabaseProxy
) -> None:
    act = transactions.make(name, hurt, engine)
    proxy.set_trap(Action.CUT_AFTER, act.commit)
    with pytest.raises(LedgerUnavailable, match="CommitUncertain"):
        act.act()
    assert act.done() == 1


def test_a_commit_whose_answer_is_lost_is_said_to_be_uncertain_and_never_repeated(
    hurt: Engine, engine: Engine, proxy: DatabaseProxy
) -> None:
    act = transactions.make("record_change", hurt, engine)
    proxy.set_trap(Action.CUT_AFTER, act.commit, within=act.within)
    with pytest.raises(CommitUncertain):
        act.act()
    assert act.again().duplicate


@each_transaction
def test_a_server_killed_in_mid_transaction_comes_back_without_it(
    name: str, hurt: Engine, engine: Engine, proxy: DatabaseProxy, mariadb_server: EmbeddedMariaDB
) -> None:
    act = transactions.make(name, hurt, engine)
    trap = proxy.set_trap(Action.HOLD_STATEMENT, act.commit, within=act.within)
    with under_way(act) as running:
        trap.wait()
        mariadb_server.kill()
        trap.released.set()
        try:
            with pytest.raises(LOST):
                running.result(20)
        finally:
            mariadb_server.start()
    assert act.done() == 0
    act.again()
    assert act.done() == 1


def test_a_statement_that_hangs_ends_with_an_error_and_a_bounded_wait(
    database: DatabaseUrls, proxy: DatabaseProxy, engine: Engine
) -> None:
    """The server is silent, as behind a network that swallows packets: the client's own bound ends it."""
    from oldhost_sync.store.engine import create_engine

    hasty = create_engine(proxy.url(database.app), statement_seconds=0.5)
    act = transactions.make("record_change", hasty, engine)
    trap = proxy.set_trap(Action.HOLD_ANSWER, "^INSERT INTO outbox_events")
    with under_way(act) as running:
        trap.wait()
        with pytest.raises(LOST):
            running.result(20)
    hasty.dispose()
    act.again()
    assert act.done() == 1


@each_transaction
def test_who_freezes_inside_a_transaction_loses_it_and_its_locks(
    name: str, database: DatabaseUrls, engine: Engine, proxy: DatabaseProxy
) -> None:
    """Stopped before its COMMIT and not gone: the server must not hold its locks until it comes back."""
    from oldhost_sync.store.engine import create_engine

    brief = create_engine(proxy.url(database.app), idle_transaction_seconds=1)
    act = transactions.make(name, brief, engine)
    trap = proxy.set_trap(Action.HOLD_STATEMENT, act.commit, within=act.within)
    with conflicts(brief) as seen, under_way(act) as frozen:
        trap.wait()
        act.again()
        trap.released.set()
        with pytest.raises((*LOST, Fenced)):  # what is one packet came too late as a whole
            frozen.result(20)
    brief.dispose()
    assert seen == [], "its successor waited for the locks no longer than once"
    assert act.done() == 1


def test_the_frozen_are_hung_up_on_while_their_successor_waits_for_the_first_time(database_url: str) -> None:
    from oldhost_sync.store.engine import create_engine

    with create_engine(database_url).connect() as connection:
        idle, wait = connection.exec_driver_sql("SELECT @@idle_transaction_timeout, @@innodb_lock_wait_timeout").one()
    assert 0 < idle < wait
