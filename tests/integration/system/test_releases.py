"""Workers of two releases side by side: a rolling upgrade, and ways back. Nothing is lost, and sending goes on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from temporalio.client import Client

from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.temporal.writer_health import describe_writer
from oldhost_sync.worker.release_watch import run_release
from tests.faults.load import Load
from tests.faults.product import ROOT, Product
from tests.faults.release import NEXT, next_release

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

WRITES_PER_SECOND = 6.0
# What a rolling upgrade or rollback may cost.
PAUSE_SECONDS_MAX = 15.0


class Fleet:
    """The workers under load, the release that the writer's run keeps, and how long OldHost got nothing."""

    def __init__(self, product: Product, next_code: Path) -> None:
        self.product = product
        self.code = {RELEASE: ROOT, NEXT: next_code}

    def start(self, name: str, release: int) -> None:
        self.product.start("worker", name, code=self.code[release])

    def is_at_work(self, name: str) -> bool:
        return "is at work" in self.product.children[name].said()

    def run_keeps(self, release: int) -> None:
        def kept() -> int | None:
            return self.product.ask(self._release_of_run)

        self.product.wait_for(f"a run of release {release}", lambda: kept() == release)

    async def _release_of_run(self, client: Client) -> int | None:
        described = await describe_writer(client, self.product.host)
        return None if described is None else run_release(described)

    def longest_pause(self) -> float:
        moments: list[float] = sorted(one["received_at"] for one in self.product.journal() if one.get("received_at"))
        return max(after - before for before, after in pairwise(moments))


@pytest.fixture
def fleet(product: Product, tmp_path: Path) -> Fleet:
    product.start("relay")
    product.start_api()
    product.start_writer()
    return Fleet(product, next_release(tmp_path / "next"))


@pytest.fixture
def load(product: Product, fleet: Fleet) -> Iterator[Load]:
    """Applications write all the time; in the end everything has its fate, in order, once."""
    load = Load(product.api, 1, WRITES_PER_SECOND)
    load.start()
    try:
        yield load
    finally:
        load.stop()


@pytest.mark.timeout(180)
def test_a_rolling_upgrade_and_both_ways_back_lose_nothing_and_hardly_pause(fleet: Fleet, load: Load) -> None:
    product = fleet.product
    fleet.start("old-1", RELEASE)
    fleet.run_keeps(RELEASE)

    fleet.start("next-1", NEXT)
    product.wait_for("the new worker to be at work", lambda: fleet.is_at_work("next-1"))
    fleet.run_keeps(RELEASE)
    product.children["old-1"].stop()
    fleet.run_keeps(NEXT)

    # Back, while the new one is still at work: it begins a run that the old one knows.
    fleet.start("old-2", RELEASE)
    fleet.run_keeps(RELEASE)
    product.children["old-2"].stop()
    fleet.run_keeps(NEXT)

    # Back, when nobody who knows the run's release is left.
    product.children["next-1"].stop()
    fleet.start("old-3", RELEASE)
    fleet.run_keeps(RELEASE)
    product.wait_for("the old worker to be at work", lambda: fleet.is_at_work("old-3"))

    load.stop()
    load.settle(20)
    product.wait_for("all fates", lambda: None not in product.fates().values())
    product.check_clean()
    assert {receipt.state for receipt in load.receipts} <= {"accepted", "abandoned"}
    assert fleet.longest_pause() <= PAUSE_SECONDS_MAX
    assert "workflow task fails" not in product.logs()
    print(f"longest pause {fleet.longest_pause():.1f} s, {len(product.applied())} operations applied")
