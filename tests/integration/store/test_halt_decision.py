"""A decision about a halt is told of until the writer has acted on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.oldhost.ledger import NOT_ASKED, Count
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.ledger.halt import note_count
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.read.halt import HaltDecision, read_decision
from tests.integration.store.writing import HOST, change_sql, rows

pytestmark = pytest.mark.mariadb
IN_VAIN, ASKED = NOT_ASKED, Count(12)


@pytest.fixture(autouse=True)
def halt(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO nonce_ledger (host, epoch, next_nonce, last_applied_nonce, halted, halted_expected_nonce) "
            "VALUES (%s, 3, 9, 8, 'another wrote', 12)",
            (HOST,),
        )
        raise_alert(connection, HOST, "halted", "critical", "another wrote", dedupe_key="halt")


def decided(engine: Engine, count: Count) -> HaltDecision | None:
    with engine.begin() as connection:
        assert decide(connection, OperatorAct(HOST, "resolve", "anna", "why", mode="adopt"), count).refused == ""
    return found(engine)


def epoch_of(engine: Engine) -> int:
    (ledger,) = rows(engine, "SELECT epoch FROM nonce_ledger")
    return int(ledger["epoch"])


def found(engine: Engine) -> HaltDecision | None:
    with engine.connect() as connection:
        return read_decision(connection, HOST)


def test_without_a_decision_there_is_none(engine: Engine) -> None:
    assert found(engine) is None


@pytest.mark.parametrize("count", [IN_VAIN, ASKED], ids=["OldHost could not be asked", "it is in the database"])
def test_until_a_session_is_open_it_is_to_be_carried_out(engine: Engine, count: Count) -> None:
    decision = decided(engine, count)
    assert decision is not None
    assert (decision.operator, decision.mode) == ("anna", "adopt")


def test_with_the_alert_it_is_through(engine: Engine) -> None:
    decided(engine, ASKED)
    with engine.begin() as connection:
        close_alert(connection, HOST, "halt")
    assert found(engine) is None


def test_a_decision_about_an_earlier_halt_than_the_present_one_is_refused(engine: Engine) -> None:
    """As from a page that was opened before somebody else decided."""
    shown = epoch_of(engine)
    decided(engine, ASKED)
    with engine.begin() as connection:
        decide(connection, OperatorAct(HOST, "halt", "writer", "OldHost went back", epoch=epoch_of(engine)))
        late = OperatorAct(HOST, "resolve", "bob", "why", mode="adopt", epoch=shown)
        assert decide(connection, late, ASKED).refused.startswith("this is not the halt that you were shown")
        assert decide(connection, replace(late, epoch=epoch_of(engine)), IN_VAIN).refused == ""


def test_a_writer_that_begins_anew_and_finds_the_halt_makes_no_other_halt_of_it(engine: Engine) -> None:
    """Its opening raises the epoch."""
    shown = epoch_of(engine)
    change_sql(engine, "UPDATE nonce_ledger SET epoch = epoch + 1")
    with engine.begin() as connection:
        act = OperatorAct(HOST, "resolve", "anna", "why", mode="adopt", epoch=shown)
        assert decide(connection, act, ASKED).refused == ""


def test_a_halt_that_came_after_it_is_to_be_decided_anew(engine: Engine) -> None:
    decided(engine, IN_VAIN)
    with engine.begin() as connection:
        decide(connection, OperatorAct(HOST, "halt", "writer", "a second ban within the hour"))
    assert found(engine) is None


@pytest.mark.parametrize(("nonce", "fits"), [(None, False), (12, False), (15, False), (8, False), (9, True)])
def test_only_a_count_that_fits_the_ledger_again_changes_what_a_halt_says(
    engine: Engine, nonce: int | None, fits: bool
) -> None:
    with engine.begin() as connection:
        said = note_count(connection, HOST, Count(nonce))
    (ledger,) = rows(engine, "SELECT halted, halted_expected_nonce AS shown FROM nonce_ledger")
    assert ("fits the ledger" in said, "fits the ledger" in ledger["halted"]) == (fits, fits)
    assert (ledger["halted"], ledger["shown"]) == ((said, 9) if fits else ("another wrote", 12))
