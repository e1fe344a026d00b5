"""What a writer that begins with nothing is told by the database."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine.actions import RecordConditions
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.alerts import keep_writer_conditions
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.read.host_condition import PersistedState, read_persisted_state
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb


def act(engine: Engine, action: str, *, operator: str = "ana", entity: EntityKey | None = None) -> None:
    with engine.begin() as connection:
        decide(
            connection,
            OperatorAct(
                HOST, action, operator, "a look", entity_type=entity and entity[0], entity_id=entity and entity[1]
            ),
        )


def found(engine: Engine) -> PersistedState:
    with engine.begin() as connection:
        return read_persisted_state(connection, HOST)


def test_nothing_stands_at_first(engine: Engine) -> None:
    assert found(engine) == PersistedState(None, None, 0, 0)


def test_the_number_of_the_writer_s_last_list_of_conditions_is_told(engine: Engine) -> None:
    """A writer that numbered below it, by a clock that was set back since, would be ignored."""
    with engine.begin() as connection:
        keep_writer_conditions(connection, HOST, RecordConditions(sequence=5))
        keep_writer_conditions(connection, "another", RecordConditions(sequence=99))
    assert found(engine).conditions_sequence == 5


def test_a_pause_stands_until_it_is_resumed(engine: Engine) -> None:
    act(engine, "pause", operator="ana")
    act(engine, "flush", operator="ben")
    pause = found(engine).pause
    assert pause is not None
    assert (pause.operator, pause.reason) == ("ana", "a look")
    act(engine, "resume", operator="ben")
    assert found(engine).pause is None


@pytest.mark.parametrize(("seconds", "low", "high"), [(600, 590_000, 600_000), (-600, -610_000, -600_000)])
def test_a_bans_rest_is_told_and_how_long_ago_it_ended(engine: Engine, seconds: int, low: int, high: int) -> None:
    act(engine, "pause")  # there is a row of the ledger from now on
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE nonce_ledger SET banned_until = UTC_TIMESTAMP(6) + INTERVAL :seconds SECOND"),
            {"seconds": seconds},
        )
    left_ms = found(engine).ban_left_ms
    assert left_ms is not None
    assert low <= left_ms <= high


def test_it_is_kept_which_entity_was_flushed(engine: Engine) -> None:
    act(engine, "flush", entity=EntityKey("unit", "A-101"))
    with engine.begin() as connection:
        (flushed,) = list_acts(connection, HOST)
    assert flushed.detail is not None
    assert (flushed.detail["entity_type"], flushed.detail["entity_id"]) == ("unit", "A-101")


def test_the_last_of_pause_and_resume_counts_though_the_clock_was_set_back(engine: Engine) -> None:
    act(engine, "pause")
    with engine.begin() as connection:
        connection.execute(text("UPDATE operator_audit SET created_at = created_at + INTERVAL 1 HOUR"))
    act(engine, "resume")
    assert found(engine).pause is None
