"""Two sessions of one host, each at another server of a Galera cluster: rows are locked at one server only, so the
sessions meet when they commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.oldhost.errors import Fenced
from oldhost_sync.oldhost.ledger import Reserved, TakenOver
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.schema_migration import migrate
from tests.conformance.maria_world import MariaWorld
from tests.faults.galera_cluster import PROVIDER, GaleraCluster

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.slow,
    pytest.mark.skipif(not PROVIDER.exists(), reason="needs Debian's galera-4"),
]
SETTLE_SECONDS = 10.0
# One in seven went wrong while sends were marked without writing the ledger's row.
ROUNDS = 100
ARRIVES_WITHIN_SECONDS = 10.0


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[list[MariaWorld]]:
    with GaleraCluster(tmp_path) as cluster:
        migrate(cluster.create_database("ledger").migration)
        engines = [create_engine(node.urls("ledger").app) for node in cluster.nodes[:2]]
        yield [MariaWorld(engine, SETTLE_SECONDS) for engine in engines]
        for engine in engines:
            engine.dispose()


def test_a_send_is_known_to_the_takeover_at_another_server_or_refused(worlds: list[MariaWorld]) -> None:
    """Otherwise the new session would take "not applied yet" for final while that send is under way: a replay."""
    old, new = worlds
    epoch = old.ledger.take_over("old").epoch
    old.ledger.adopt_first(epoch, 1)
    (operation,) = old.ledger.reserve(epoch, [old.record()])
    assert isinstance(operation, Reserved)
    old.ledger.advance(epoch, None, operation)
    again = replace(operation, sends=1)
    found = set()
    for number in range(ROUNDS):
        old.age(SETTLE_SECONDS)
        _until(lambda: new.read("SELECT sent_at < UTC_TIMESTAMP(6) - INTERVAL 9 SECOND FROM nonce_requests") == [(1,)])
        with ThreadPoolExecutor(2) as threads:
            both = threading.Barrier(2)
            sending = threads.submit(_send_again, old, epoch, again, both, reads_first=number % 8)
            opening = threads.submit(_take_over, new, both)
        taken = opening.result()
        found.add((sending.result(), "known" if taken.settle_wait_ms else "not known"))
        epoch = taken.epoch
        _until(lambda: old.ledger.epoch() == epoch)  # noqa: B023 - called at once
        old.ledger.advance(epoch, None, again, again=True)
    assert ("sent", "not known") not in found
    assert {("sent", "known"), ("refused", "not known")} <= found, "one was always first: nothing was tried"


def _send_again(world: MariaWorld, epoch: int, again: Reserved, both: threading.Barrier, *, reads_first: int) -> str:
    both.wait()
    for _ in range(reads_first):
        world.ledger.epoch()
    try:
        world.ledger.advance(epoch, None, again, again=True)
    except Fenced:
        return "refused"
    return "sent"


def _take_over(world: MariaWorld, both: threading.Barrier) -> TakenOver:
    both.wait()
    return world.ledger.take_over("new")


def _until(holds: Callable[[], bool]) -> None:
    """Until what the other server wrote is here, too."""
    last = time.monotonic() + ARRIVES_WITHIN_SECONDS
    while not holds():
        assert time.monotonic() < last, "it did not arrive"
