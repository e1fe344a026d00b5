"""From a fact in the database to the rule that fires: the real exporters of a relay, scraped as Prometheus would."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.relay import host_watch
from oldhost_sync.relay.host_watch import OVERDUE_SECONDS_MAX, POLL_SECONDS
from oldhost_sync.store.errors import StatementTooSlow
from oldhost_sync.telemetry import RelayMetrics
from tests.integration.relay import test_host_watch as figures
from tests.integration.relay import test_promise_watch as promises
from tests.integration.store.writing import HOST, change_sql, recorded
from tests.monitoring.alert_rules import Scraper

pytestmark = pytest.mark.mariadb

# Worker and API are not scraped here.
ABSENT = {"OldHostSyncNoWorker", "OldHostSyncNoApi"}
MINUTE = 4  # scrapes


class Scene:
    """A host's figures, looked at and scraped."""

    def __init__(self, engine: Engine) -> None:
        self.stage = figures.Stage(engine)
        self.scraper = Scraper(self.stage.registry)

    def firing(self, scrapes: int = 1) -> set[str]:
        self.stage.poll()
        self.scraper.scrape(scrapes)
        return self.scraper.firing() - ABSENT


@pytest.fixture
def scene(engine: Engine) -> Scene:
    return Scene(engine)


def test_all_is_well(scene: Scene) -> None:
    assert scene.firing(15 * MINUTE) == set()


def test_a_ban_fires_while_it_lasts(scene: Scene, engine: Engine) -> None:
    scene.firing()
    figures.ledger(engine, banned_until="UTC_TIMESTAMP(6) + INTERVAL 600 SECOND")
    assert scene.firing() == {"OldHostSyncBanned"}
    figures.ledger(engine, banned_until="UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    assert scene.firing() == set()


def test_a_halt_fires_until_it_is_resolved(scene: Scene, engine: Engine) -> None:
    figures.ledger(engine, halted="'OldHost went back'")
    assert scene.firing() == {"OldHostSyncHalted"}
    figures.ledger(engine, halted="NULL")
    assert scene.firing() == set()


def test_an_emergency_that_waits_beyond_its_promise_fires(scene: Scene, engine: Engine) -> None:
    change_id = promises.emergency(engine, 31)
    assert scene.firing() == {"OldHostSyncEmergencyLate"}
    figures.ended(engine, change_id, "APPLIED")
    assert scene.firing() == set()


def test_a_writer_that_does_not_run_fires_after_a_minute(scene: Scene) -> None:
    scene.stage.troubles[f"writer {HOST}"] = "NO_WORKER"
    assert scene.firing(MINUTE) == set()
    assert scene.firing() == {"OldHostSyncNoWriter"}


def test_a_dead_letter_that_nobody_decides_on_fires(scene: Scene, engine: Engine) -> None:
    figures.ended(engine, recorded(engine).change_id, "DEAD", "no such door")
    assert scene.firing(10 * MINUTE) == set()
    assert scene.firing() == {"OldHostSyncDeadLetters"}


def test_a_relay_that_is_gone_fires_when_no_other_took_over(scene: Scene) -> None:
    scene.firing()
    scene.stage.watch.metrics.forget(HOST)
    scene.scraper.scrape(2 * MINUTE)
    assert "OldHostSyncNoRelay" not in scene.scraper.firing()
    scene.scraper.scrape()
    assert "OldHostSyncNoRelay" in scene.scraper.firing()


def test_figures_that_can_not_be_read_fire_though_they_were_well_before(scene: Scene) -> None:
    RelayMetrics(scene.stage.registry).condition.labels(HOST, "active").set(1)
    assert scene.firing() == set()
    scene.stage.now += OVERDUE_SECONDS_MAX + 2 * POLL_SECONDS
    scene.scraper.scrape(2 * MINUTE + 1)
    assert scene.scraper.firing() - ABSENT == {"OldHostSyncNoRelay", "OldHostSyncNoFigures"}


def test_books_that_can_not_be_checked_fire_after_half_an_hour(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(*_: object) -> int:
        raise StatementTooSlow("statement took too long (MariaDB 1969)")

    monkeypatch.setattr(host_watch, "check_books", too_slow)
    assert scene.firing(30 * MINUTE) == set()
    assert scene.firing() == {"OldHostSyncBooksUnchecked"}


def test_a_broken_promise_fires_also_when_it_is_the_first(engine: Engine) -> None:
    change_sql(engine, f"INSERT INTO nonce_ledger (host) VALUES ('{HOST}')")
    stage = promises.Stage(engine)
    scraper = Scraper(stage.registry)
    stage.looks(0)
    scraper.scrape()
    assert "OldHostSyncPromiseBroken" not in scraper.firing()
    promises.end(engine, promises.emergency(engine, 31))
    stage.looks(11)
    scraper.scrape()
    assert "OldHostSyncPromiseBroken" in scraper.firing()
    scraper.scrape(15 * MINUTE)
    assert "OldHostSyncPromiseBroken" not in scraper.firing()
