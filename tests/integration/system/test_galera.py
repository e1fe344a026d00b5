"""MariaDB as a Galera cluster of which one server is written to: when it is cut off, another one goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.schema_migration import migrate
from tests.faults.galera_cluster import PROVIDER, GaleraCluster
from tests.faults.product import Product
from tests.integration.system.changes import accepts, submit

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.temporal,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not PROVIDER.exists(), reason="needs Debian's galera-4"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GaleraCluster]:
    with GaleraCluster(tmp_path / "servers") as cluster:
        yield cluster


@pytest.fixture
def product(tmp_path: Path, cluster: GaleraCluster, temporal: EmbeddedTemporal) -> Iterator[Product]:
    urls = cluster.create_database("galera")
    migrate(urls.migration)
    given = {"host": f"galera-{cluster.nodes[0].port}"}
    with Product(tmp_path, urls, temporal.address, given=given) as product:
        product.start_all()
        yield product


def test_a_server_that_is_cut_off_from_the_others_is_left_at_once(cluster: GaleraCluster, product: Product) -> None:
    """It lives on and answers pings; every other statement fails."""
    before = submit(product, 30, "before")
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)
    product.wait_for("the relay's wait", lambda: _waits_at_first(cluster), 20)
    cluster.isolate_first()
    product.wait_for("the API to accept again", lambda: accepts(product), 20)
    urgent = product.api.change("urgent", "guest_locked_out", {"door": "x"})
    product.wait_for("the emergency", lambda: urgent in {change_id for _, change_id in product.applied()}, 30)
    product.wait_for("all fates", lambda: None not in product.fates().values(), 90)
    product.check_clean()
    assert set(before) <= {change_id for _, change_id in product.applied()}
    assert "halted" not in product.open_alerts()
    assert not _waits_at_first(cluster)


def _waits_at_first(cluster: GaleraCluster) -> bool:
    """Whether the relay's wait for new changes is at the first server. Of its loop MariaDB shows the part that it
    executes, which is nearly always the pause.
    """
    return any(statement.startswith("DO SLEEP(") for statement in cluster.statements_at_first())
