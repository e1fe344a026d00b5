"""A worker's lock: held while its process lives, free as soon as it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text

from oldhost_sync.store import workers
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.workers import hold, is_free

pytestmark = pytest.mark.mariadb

HOLDER = """
import sys, threading
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.workers import hold
hold(create_engine(sys.argv[1], autocommit=True), sys.argv[2], threading.Event())
"""
SECONDS_MAX = 20.0


@pytest.fixture
def asking(engine: Engine) -> Iterator[Engine]:
    engine = create_engine(engine.url.render_as_string(hide_password=False), pool_size=2, autocommit=True)
    yield engine
    engine.dispose()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline


def holder(engine: Engine, worker: str) -> Any:
    """The id of the connection that holds the lock, or None."""
    with engine.connect() as connection:
        named = text("SELECT IS_USED_LOCK(CONCAT('oldhost-sync-worker:', MD5(:name)))")
        return connection.execute(named, {"name": worker}).scalar_one()


def free(engine: Engine, worker: str, within_seconds: float = 0) -> bool:
    with engine.connect() as connection:
        return is_free(connection, worker, within_seconds)


@contextmanager
def held(engine: Engine, worker: str) -> Iterator[Any]:
    """The lock held by a thread; yields the id of its connection."""
    over = threading.Event()
    thread = threading.Thread(target=hold, args=(engine, worker, over))
    thread.start()
    try:
        until(lambda: holder(engine, worker))
        yield holder(engine, worker)
    finally:
        over.set()
        thread.join()


def test_a_lock_is_free_as_soon_as_its_holders_process_was_killed(asking: Engine) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, asking.url.render_as_string(hide_password=False), "w1"])
    try:
        until(lambda: holder(asking, "w1"))
        assert not free(asking, "w1")
        process.kill()
        assert free(asking, "w1", within_seconds=5)
    finally:
        process.kill()
        process.wait()


def test_who_asks_for_a_lock_does_not_keep_it(asking: Engine) -> None:
    assert free(asking, "w1")
    assert holder(asking, "w1") is None


def test_each_worker_has_a_lock_of_its_own(asking: Engine) -> None:
    with held(asking, "w1"):
        assert (free(asking, "w1"), free(asking, "w2")) == (False, True)


def test_a_lock_is_given_back_at_the_end(asking: Engine) -> None:
    with held(asking, "w1"):
        pass
    assert free(asking, "w1", within_seconds=5)


def test_a_holder_whose_connection_was_killed_takes_its_lock_again(asking: Engine, engine: Engine) -> None:
    with held(asking, "w1") as first:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"KILL {first}")
        until(lambda: holder(asking, "w1") not in {None, first})


def test_a_holder_that_says_nothing_is_disconnected(asking: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a frozen process, or one behind a network that swallows packets."""
    monkeypatch.setattr(workers, "LOCK_POLL_SECONDS", 60)
    monkeypatch.setattr(workers, "LOCK_SILENT_SECONDS_MAX", 1)
    with held(asking, "w1") as first:
        until(lambda: holder(asking, "w1") not in {None, first})
