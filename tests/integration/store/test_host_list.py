"""What the list of hosts says of one whose changes wait."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.operator_act import OperatorAct
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.transactions import look
from oldhost_sync.store.views.host_list import read_hosts
from tests.integration.store.writing import HOST, change_sql, recorded

pytestmark = pytest.mark.mariadb


def test_a_halt_that_is_decided_asks_nobody_to_decide(engine: Engine) -> None:
    columns = "host, epoch, next_nonce, last_applied_nonce, halted"
    change_sql(engine, f"INSERT INTO nonce_ledger ({columns}) VALUES ('{HOST}', 3, 9, 8, 'another wrote: decide')")
    with engine.begin() as connection:
        raise_alert(connection, HOST, "halted", "critical", "another wrote", dedupe_key="halt")
        decide(connection, OperatorAct(HOST, "resolve", "anna", "why", mode="adopt"))
    (line,) = look(engine, lambda connection: read_hosts(connection, [HOST]))
    assert line.state == "HALTED"
    assert line.why.startswith("anna decided about the halt")


def state_of(engine: Engine) -> str:
    (line,) = look(engine, lambda connection: read_hosts(connection, [HOST]))
    return line.state


def answered(engine: Engine, *, seconds_ago: int) -> None:
    """OldHost answered the host's last operation so long ago."""
    change_sql(engine, f"INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce) VALUES ('{HOST}', 8, 7)")
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, completed_at) "
        f"VALUES ('{HOST}', 7, 'k', 1, 1, '', 'APPLIED', UTC_TIMESTAMP(6) - INTERVAL {seconds_ago} SECOND)",
    )


def test_a_host_for_which_nothing_waits_is_idle(engine: Engine) -> None:
    answered(engine, seconds_ago=1)
    assert state_of(engine) == "IDLE"


def test_a_host_that_has_never_sent_waits(engine: Engine) -> None:
    recorded(engine)
    assert state_of(engine) == "WAITING"


def test_a_host_whose_operation_was_answered_in_the_last_minute_sends(engine: Engine) -> None:
    recorded(engine)
    answered(engine, seconds_ago=50)
    assert state_of(engine) == "SENDING"


def test_a_host_whose_last_answer_is_older_waits(engine: Engine) -> None:
    recorded(engine)
    answered(engine, seconds_ago=70)
    assert state_of(engine) == "WAITING"
