"""A host's mapping in the database: installed once for all, and asked by each door that records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.engine import Engine

from activities.submissions import SubmissionActivities
from oldhost_sync import ChangesRefused, InvalidChange, RecordedChange, record_changes
from oldhost_sync.drivers.mapping import OLDHOST, HostMapping
from oldhost_sync.store.errors import MappingVersionTaken
from oldhost_sync.store.intake.schedule import due, record_due
from oldhost_sync.store.mappings import install_mappings, mapping_of
from oldhost_sync.store.schema_migration import migrate
from oldhost_sync.store.transactions import run_in_transaction
from tests.called_by_writer import called_by_writer
from tests.conformance.mappings import LONGER, SHORT, UNIT_ID, install
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.test_batches import change
from tests.integration.store.writing import HOST, record, recorded, register, rows
from workflows import messages

pytestmark = pytest.mark.mariadb
WHY = "payload.status is missing: mapping short/1 needs /payload/status for event type unit_status_changed"


@pytest.fixture
def short(engine: Engine) -> Engine:
    """A database where SHORT is installed."""
    install(engine, SHORT)
    return engine


def count(engine: Engine) -> int:
    (row,) = rows(engine, "SELECT (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM submitted_keys) AS n")
    return int(row["n"])


def test_a_change_that_can_not_be_sent_is_refused_and_the_transaction_goes_on(short: Engine) -> None:
    with short.begin() as connection:
        with pytest.raises(InvalidChange) as refused:
            record(connection, payload={"state": "secret"})
        assert (str(refused.value), refused.value.field) == (WHY, "payload.status")
        record(connection, entity_id="102")
    assert [row["entity_id"] for row in rows(short, "SELECT entity_id FROM outbox_events")] == ["102"]


def test_a_scheduled_change_is_checked_when_it_is_scheduled(short: Engine) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(InvalidChange, match=r"payload\.status is missing"):
        recorded(short, payload={}, not_before=later)
    assert count(short) == 0


def test_a_scheduled_change_that_was_accepted_is_recorded_when_it_is_due(engine: Engine) -> None:
    recorded(engine, payload={}, not_before=datetime.now(UTC) + timedelta(hours=1))
    install(engine, SHORT)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6)")
        (found,) = due(connection, HOST, 10)
        assert record_due(connection, found) is not None


def test_a_known_key_gets_its_first_answer_whatever_the_mapping_is_now(engine: Engine) -> None:
    first = recorded(engine, payload={}, idempotency_key="k")
    batched = change("7", key="b", payload={})
    run_in_transaction(engine, lambda connection: record_changes(connection, [batched], host=HOST))
    install(engine, SHORT)
    again = recorded(engine, payload={}, idempotency_key="k")
    assert (again.change_id, again.duplicate) == (first.change_id, True)
    (of_batch,) = run_in_transaction(engine, lambda connection: record_changes(connection, [batched], host=HOST))
    assert of_batch.duplicate


def test_in_a_batch_only_that_changes_entity_is_refused(short: Engine) -> None:
    changes = [change("1"), change("2", payload={}), change("2"), change("3")]
    with short.connect() as connection:
        with pytest.raises(ChangesRefused) as refused:
            record_changes(connection, changes, host=HOST)
        connection.commit()
    results = refused.value.results
    assert [isinstance(result, RecordedChange) for result in results] == [True, False, False, True]
    assert str(results[1]) == WHY
    assert count(short) == 4  # two changes, and their keys


def test_a_submission_by_signal_or_update_is_refused_with_the_reason(short: Engine) -> None:
    bad = {"entity_type": "unit", "entity_id": "1", "event_type": "unit_status_changed", "payload": {}}
    request = messages.Submissions([messages.Submission(bad, "fallback")])
    (answer,) = called_by_writer().run(SubmissionActivities(short).record_submissions, request)
    assert WHY in answer.refused
    (row,) = rows(short, "SELECT outcome, error FROM outbox_events")
    assert (row["outcome"], row["error"]) == ("REFUSED", WHY)


def by_one(engine: Engine, host: str) -> None:
    recorded(engine, host=host, payload={})


def by_batch(engine: Engine, host: str) -> None:
    changes = [change("1", payload={}), change("2", payload={})]
    run_in_transaction(engine, lambda connection: record_changes(connection, changes, host=host))


def by_schedule(engine: Engine, host: str) -> None:
    recorded(engine, host=host, payload={}, not_before=datetime.now(UTC) + timedelta(hours=1))


def by_signal(engine: Engine, host: str) -> None:
    bad = {"entity_type": "unit", "entity_id": "1", "event_type": "unit_status_changed", "payload": {}}
    request = messages.Submissions([messages.Submission(bad, f"fallback-{host}")])
    (answer,) = called_by_writer(host).run(SubmissionActivities(engine).record_submissions, request)
    if answer.refused:
        raise InvalidChange(answer.refused)


@pytest.mark.parametrize("door", [by_one, by_batch, by_schedule, by_signal])
def test_each_door_asks_the_mapping_of_the_changes_host(short: Engine, door: Callable[[Engine, str], None]) -> None:
    register(short, "north")
    door(short, "north")
    with pytest.raises((InvalidChange, ChangesRefused)) as refused:
        door(short, HOST)
    assert WHY in str(getattr(refused.value, "results", refused.value))
    with short.connect() as connection:
        assert [mapping_of(connection, host) for host in ("north", HOST)] == [OLDHOST, SHORT]


OTHER = HostMapping("short", "1", {"*": (UNIT_ID,)})


@pytest.mark.parametrize("since", [(), (LONGER,), (LONGER, SHORT)], ids=["it is in use", "it was replaced", "again"])
def test_a_version_that_was_ever_installed_gets_no_other_rules(short: Engine, since: Sequence[HostMapping]) -> None:
    for mapping in since:
        install(short, mapping)
    with pytest.raises(MappingVersionTaken, match="oldhost has had another mapping short/1"):
        install(short, OTHER)
    install(short, OTHER, "north")
    for mapping in (SHORT, LONGER, OLDHOST, SHORT):
        install(short, mapping)
        with short.connect() as connection:
            assert [mapping_of(connection, host) for host in (HOST, "north")] == [mapping, OTHER]


def test_of_several_mappings_none_is_installed_if_one_is_refused(short: Engine) -> None:
    with pytest.raises(MappingVersionTaken):
        run_in_transaction(short, lambda connection: install_mappings(connection, {"north": LONGER, HOST: OTHER}))
    with short.connect() as connection:
        assert [mapping_of(connection, host) for host in ("north", HOST)] == [OLDHOST, SHORT]


def test_migrate_installs_a_mapping_for_all_hosts_and_without_one_leaves_it(mariadb_server: PrivateMariaDB) -> None:
    with mariadb_server.fresh_database() as engine:
        url = engine.url.render_as_string(hide_password=False)
        migrate(url, (HOST, "north"), {HOST: LONGER, "north": LONGER})
        migrate(url, (HOST, "south"))
        with engine.connect() as connection:
            found = [mapping_of(connection, host).name for host in (HOST, "north", "south")]
    assert found == ["longer", "longer", "oldhost"]
