"""One worker and two unlike hosts of a file: one over TLS with credentials and a slow answer, one plain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from activities.session import SessionActivities
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.actions import OpenSession, Send
from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.roles.worker import session_activities
from oldhost_sync.settings import load_settings
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.outbox.outstanding_changes import mark_relayed
from oldhost_sync.telemetry import WorkerMetrics
from tests.called_by_writer import called_by_writer
from tests.certificates import Authority
from tests.conformance.maria_world import MariaWorld
from tests.integration.store.writing import register

pytestmark = pytest.mark.mariadb

SECRET = "correct-horse-battery"


@pytest.fixture
def north(tmp_path: Path) -> Iterator[Simulator]:
    """Speaks TLS, wants a certificate and credentials."""
    authority = Authority(tmp_path)
    certificate, key = authority.sign("127.0.0.1")
    authority.sign("client")
    (tmp_path / "authorization").write_text(f"Bearer {SECRET}")
    (tmp_path / "auth").write_text(f"bearer {SECRET}\n")
    config = Config(
        latency_ms=0,
        first_nonce=501,
        tls_cert=certificate,
        tls_key=key,
        client_ca=authority.file,
        authorization_file=tmp_path / "authorization",
    )
    with Simulator(config) as simulator:
        yield simulator


@pytest.fixture
def south() -> Iterator[Simulator]:
    with Simulator(Config(latency_ms=0)) as simulator:
        yield simulator


@pytest.fixture
def sessions(world: MariaWorld, north: Simulator, south: Simulator, tmp_path: Path) -> SessionActivities:
    register(world.engine, "north", "south")
    file = tmp_path / "hosts.toml"
    file.write_text(f"""
[hosts.north]
url = "{north.url}"
ca_file = "test authority.pem"
cert_file = "client.pem"
key_file = "client.key"
auth_file = "auth"
request_timeout_seconds = 20
settle_seconds = 40

[hosts.south]
url = "{south.url}"
""")
    settings = load_settings(host="south", hosts_file=file)
    return session_activities(settings, world.engine, WorkerMetrics(CollectorRegistry()))


def applied(sessions: SessionActivities, world: MariaWorld, host: str, *names: str) -> list[int | None]:
    """The nonces of so many changes, sent in one session of the host."""
    with world.engine.begin() as connection:
        recorded = [
            record_change(
                connection, host=host, entity_type="unit", entity_id=name, event_type="booking_created", payload={}
            )
            for name in names
        ]
        ids = tuple(each.change_id for each in recorded if each.change_id is not None)
        mark_relayed(connection, ids)
    writer = called_by_writer(host)
    opened = writer.run(sessions.open_session, OpenSession(()))
    assert isinstance(opened, SessionOpened), opened
    ended = writer.run(sessions.send, Send(1, 0, opened.epoch, ids))
    assert [fate.outcome for fate in ended.fates] == ["APPLIED"] * len(names)
    return [fate.nonce for fate in ended.fates]


def test_both_hosts_get_their_operations_and_neither_the_others(
    sessions: SessionActivities, world: MariaWorld, north: Simulator, south: Simulator
) -> None:
    assert applied(sessions, world, "north", "a", "b") == [501, 502]
    assert applied(sessions, world, "south", "c") == [1]
    assert applied(sessions, world, "north", "d") == [503]
    assert [units(north), units(south)] == [["a", "b", "d"], ["c"]]
    sessions.drain()


def units(simulator: Simulator) -> list[str]:
    """As OldHost applied them."""
    entries = simulator.control(lambda controls: controls.journal(0))
    return [one.body["entity_id"] for one in entries if one.outcome == "applied" and one.body is not None]


def test_each_session_has_its_own_hosts_limits(sessions: SessionActivities) -> None:
    north, south = (sessions._opening(host, lambda: None).limits for host in ("north", "south"))
    assert (north.settle_seconds, north.request_timeout_seconds) == (40, 20)
    assert (south.settle_seconds, south.request_timeout_seconds) == (10, SessionLimits().request_timeout_seconds)


def test_no_credential_is_in_what_the_worker_shows(sessions: SessionActivities) -> None:
    assert SECRET not in f"{sessions!r}{sessions.connect_to('north', time.monotonic)._access!r}"
