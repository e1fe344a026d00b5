"""Each way on which the writer learns of a change tells its unit's property."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.changes import ChangeRef, EntityKey
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.read.host_condition import read_live_load
from tests.integration.store.test_live_load import TOMORROW
from tests.integration.store.writing import HOST, change_sql, recorded

pytestmark = pytest.mark.mariadb

EMERGENCY = "guest_locked_out"
WAYS: dict[str, Callable[[Connection], list[ChangeRef]]] = {
    "a claim": lambda connection: outstanding_changes.claim_batch(connection, HOST, 10),
    "a claim of emergencies": lambda connection: outstanding_changes.claim_batch(
        connection, HOST, 10, emergencies_only=True
    ),
    "a rebuild": lambda connection: outstanding_changes.outstanding_page(connection, HOST, 0, 10).refs,
    "a rebuild of emergencies": lambda connection: outstanding_changes.emergencies_page(connection, HOST, 0, 10).refs,
    "an entity's": lambda connection: (
        outstanding_changes.entity_page(connection, HOST, EntityKey("unit", "u"), 0, 10).refs
    ),
    "a plan": lambda connection: read_live_load(connection, HOST, 10).outstanding,
}


def moved(engine: Engine, unit: str, property_id: str | None) -> None:
    payload = {"name": "n", "property_id": property_id}
    recorded(engine, entity_id=unit, event_type="unit_details_changed", payload=payload)


@pytest.mark.parametrize("way", WAYS)
def test_a_units_changes_are_told_with_the_property_that_it_has_now(engine: Engine, way: str) -> None:
    moved(engine, "u", "hilltop")
    moved(engine, "u", "seaview")
    recorded(engine, entity_id="u", event_type=EMERGENCY)
    with engine.connect() as connection:
        found = WAYS[way](connection)
    assert len(found) == 3
    assert {ref.property_id for ref in found} == {"seaview"}


def test_a_unit_without_a_property_and_what_is_no_unit_have_none(engine: Engine) -> None:
    moved(engine, "u", "seaview")
    change_sql(engine, "DELETE FROM outbox_events")
    moved(engine, "v", None)
    recorded(engine, entity_id="w")
    recorded(engine, entity_type="booking", entity_id="u")
    with engine.connect() as connection:
        found = outstanding_changes.claim_batch(connection, HOST, 10)
        told = [outstanding_changes.with_property(connection, HOST, ref) for ref in found]
    assert [ref.property_id for ref in found] == ["", "", ""]
    assert told == found


def test_a_ref_that_was_just_recorded_gets_its_property(engine: Engine) -> None:
    moved(engine, "u", "seaview")
    ref = recorded(engine, entity_id="u").ref
    assert ref is not None
    with engine.connect() as connection:
        assert outstanding_changes.with_property(connection, HOST, ref).property_id == "seaview"


def test_what_is_scheduled_is_planned_with_its_property(engine: Engine) -> None:
    moved(engine, "u", "seaview")
    recorded(engine, entity_id="u", not_before=TOMORROW)
    with engine.connect() as connection:
        assert [ref.property_id for ref in read_live_load(connection, HOST, 10).scheduled] == ["seaview"]
