"""A worker tells of hosts that no relay serves."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.worker.watch import RELAYS_POLL_SECONDS, RelayWatch
from tests.integration.store.writing import HOST, change_sql, recorded, register

pytestmark = pytest.mark.mariadb

LEASE = "INSERT INTO relay_lease VALUES ('{host}', 'one', UTC_TIMESTAMP(6) + INTERVAL 60 SECOND)"


class Watch:
    """The watch of one worker, by a clock of its own."""

    def __init__(self, engine: Engine, hosts: tuple[str, ...]) -> None:
        self.now = 0.0
        self.watch = RelayWatch(engine, hosts, lambda: self.now)

    def poll(self) -> None:
        self.watch.poll()
        self.now += RELAYS_POLL_SECONDS


def alerts(engine: Engine) -> list[tuple[str, str, str, bool]]:
    """Host, kind, severity, and whether it is open."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT host, kind, severity, closed_at IS NULL AS is_open FROM alerts"))
        return [(row.host, row.kind, row.severity, bool(row.is_open)) for row in rows]


def test_changes_that_wait_without_a_relay_are_an_alert_until_one_comes(engine: Engine) -> None:
    register(engine, "north")
    for host in (HOST, "north"):
        recorded(engine, host=host)
    change_sql(engine, LEASE.format(host="north"))
    watch = Watch(engine, (HOST, "north"))
    watch.poll()
    assert alerts(engine) == [], "it may be one that is just being replaced"
    watch.poll()
    watch.poll()
    assert alerts(engine) == [(HOST, "no-relay", "critical", True)]
    change_sql(engine, LEASE.format(host=HOST))
    watch.poll()
    assert alerts(engine) == [(HOST, "no-relay", "critical", False)]


def test_a_host_of_other_workers_is_theirs(engine: Engine) -> None:
    recorded(engine)
    watch = Watch(engine, ("north",))
    watch.poll()
    watch.poll()
    assert alerts(engine) == []


def test_an_alert_that_an_earlier_worker_opened_is_closed_by_the_next_one(engine: Engine) -> None:
    recorded(engine)
    gone = Watch(engine, (HOST,))
    gone.poll()
    gone.poll()
    change_sql(engine, LEASE.format(host=HOST))
    Watch(engine, (HOST,)).poll()
    assert alerts(engine) == [(HOST, "no-relay", "critical", False)]


def test_an_alert_stays_open_while_its_cause_lasts_though_the_worker_is_another(engine: Engine) -> None:
    recorded(engine)
    gone = Watch(engine, (HOST,))
    gone.poll()
    gone.poll()
    Watch(engine, (HOST,)).poll()
    assert alerts(engine) == [(HOST, "no-relay", "critical", True)]
