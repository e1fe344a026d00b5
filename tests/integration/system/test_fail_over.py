"""The database fails over to its replica: with all commits nothing is noticed; with the last ones
missing the writer halts, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.schema_migration import migrate
from tests.faults.product import Product
from tests.faults.replicated_mariadb import ReplicatedMariaDB
from tests.integration.system.changes import accepts, submit

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.temporal,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

TOLD_WITHIN_S = 30.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedMariaDB]:
    with ReplicatedMariaDB(tmp_path / "servers") as servers:
        yield servers


@pytest.fixture
def replicated(tmp_path: Path, servers: ReplicatedMariaDB, temporal: EmbeddedTemporal) -> Iterator[Product]:
    urls = servers.create_database("fail_over")
    migrate(urls.migration)
    given = {"host": f"fail-over-{servers.replica.port}"}
    with Product(tmp_path, urls, temporal.address, given=given) as product:
        product.start_all()
        yield product


def _notes(product: Product) -> list[Any]:
    """Which changes OldHost has: their entities, in its order."""
    return [one["body"]["entity_id"] for one in product.journal() if one["outcome"] == "applied"]


def test_a_fail_over_to_a_replica_with_all_commits_loses_nothing(
    servers: ReplicatedMariaDB, replicated: Product
) -> None:
    """The primary is killed in mid-work: what was answered is on the replica, and what was in doubt is found out."""
    product = replicated
    before = submit(product, 60, "before")
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)
    servers.kill_primary()
    servers.promote()
    product.wait_for("the API to accept again", lambda: accepts(product), 60)
    product.wait_for("all fates", lambda: None not in product.fates().values(), 90)
    product.check_clean()
    assert set(before) <= {change_id for _, change_id in product.applied()}
    assert "halted" not in product.open_alerts()


def test_a_switchover_that_leaves_the_old_primary_running_is_followed_at_once(
    servers: ReplicatedMariaDB, replicated: Product
) -> None:
    """Nothing closes the connections to the old primary, which is read-only from then on."""
    product = replicated
    before = submit(product, 30, "before")
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)
    servers.demote_primary()
    servers.promote()
    product.wait_for("the API to accept again", lambda: accepts(product), 20)
    (urgent,) = [product.api.change("urgent", "guest_locked_out", {"door": "x"})]
    product.wait_for("the emergency", lambda: urgent in {change_id for _, change_id in product.applied()}, 30)
    product.wait_for("all fates", lambda: None not in product.fates().values(), 90)
    product.check_clean()
    assert set(before) <= {change_id for _, change_id in product.applied()}
    assert [wait for wait in servers.statements_at_old_primary() if wait.startswith("DO SLEEP(")] == []


def test_a_fail_over_that_lost_the_last_commits_halts_says_so_and_is_resolved(
    servers: ReplicatedMariaDB, replicated: Product
) -> None:
    """OldHost has what the database no longer knows: only people can say what to do, so nothing is sent until then."""
    product = replicated
    submit(product, 3, "kept")
    product.wait_for("the first ones", lambda: len(_notes(product)) == 3)
    servers.stop_replicating()
    submit(product, 4, "missing")
    product.wait_for("the fates of those that will be missing", lambda: _has_ended(product))
    product.wait_for("the writer to know them", lambda: not product.status()["in_flight"])
    servers.kill_primary()
    servers.promote()
    product.wait_for("the API to accept again", lambda: accepts(product), 60)
    product.wait_for("the halt", lambda: "halted" in product.open_alerts(), TOLD_WITHIN_S)
    told = product.sql("SELECT message FROM alerts WHERE kind = 'halted' AND is_open = 1")[0]["message"]
    # Who finds it first says it: an opening, a rebuild, or a session that is still open and gets an old nonce.
    found = ("OldHost expects nonce 8", "which the writer knows, is not in the database", "but 8 is next")
    assert [each for each in found if each in told], told
    product.wait_for("the status to say so", lambda: product.status()["breaker"]["state"] == "HALTED", 20)
    after = submit(product, 5, "after")
    _resolve(product)
    product.wait_for("all fates", lambda: _has_ended(product), 90)
    assert [outcome for change_id, outcome in product.fates().items() if change_id in after] == ["APPLIED"] * 5
    notes = _notes(product)
    assert sorted(one for one in notes if one.startswith("after")) == [f"after-{number}" for number in range(5)]
    assert len(notes) == len(set(notes)), "OldHost got something twice"
    assert (product.stats()["replays"], product.stats()["gaps"]) == (0, 0)


def test_ids_that_are_used_again_after_a_fail_over_are_not_taken_for_the_changes_that_are_gone(
    servers: ReplicatedMariaDB, replicated: Product
) -> None:
    """The writer holds changes that the new primary never had; its next ones get their ids."""
    product = replicated
    submit(product, 3, "kept")
    product.wait_for("the first ones", lambda: len(_notes(product)) == 3)
    servers.catch_up()
    product.admin("POST", "/actions/ban", {"seconds": 6})
    servers.stop_replicating()
    missing = submit(product, 6, "missing")
    product.wait_for("the writer to hold them", lambda: product.status()["counters"]["received"] >= 3 + len(missing))
    servers.kill_primary()
    servers.promote()
    product.wait_for("the API to accept again", lambda: accepts(product), 60)
    after = submit(product, 5, "after")
    assert set(after) & set(missing)
    product.wait_for("an end or a halt", lambda: _has_ended(product) or "halted" in product.open_alerts(), 60)
    if "halted" in product.open_alerts():
        _resolve(product)
    product.wait_for("all fates", lambda: _has_ended(product), 60)
    entity_of = {row["id"]: row["entity_id"] for row in product.sql("SELECT id, entity_id FROM outbox_events")}
    applied = [one["body"] for one in product.journal() if one["outcome"] == "applied"]
    assert {body["event_id"]: body["entity_id"] for body in applied} == entity_of
    assert (product.stats()["replays"], product.stats()["gaps"]) == (0, 0)


def _resolve(product: Product) -> None:
    """An operator adopts OldHost's count: one decision ends a halt for good."""
    answer = product.api.call("POST", "/api/writer/resolve", {"reason": "we saw it", "mode": "adopt"})
    assert answer[0] == 200, answer


def _has_ended(product: Product) -> bool:
    return None not in product.fates().values()
