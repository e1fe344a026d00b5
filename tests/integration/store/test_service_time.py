"""How long OldHost usually takes: of each operation its own time on the wire, whatever a few of them took."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from oldhost_sync.store.read.host_condition import LOOKED_AT_MIN, usual_service_ms
from tests.integration.store.writing import HOST, change_sql

pytestmark = pytest.mark.mariadb

BEGAN = "TIMESTAMP'2026-11-22 03:00:00'"


def sent(engine: Engine, first: int, last: int, every_ms: int) -> None:
    """Operations one after the other; each is marked while the one before it is on the wire."""
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends, sent_at, "
        f"completed_at) SELECT '{HOST}', seq, seq, seq, 1, '', 'APPLIED', 1, "
        f"{BEGAN} + INTERVAL ({every_ms} * IF(seq < 2, 0, seq - 2)) * 1000 MICROSECOND, "
        f"{BEGAN} + INTERVAL ({every_ms} * seq) * 1000 MICROSECOND FROM seq_{first}_to_{last}",
    )


def usual(engine: Engine) -> float | None:
    with engine.connect() as connection:
        return usual_service_ms(connection, HOST)


def test_it_is_the_time_from_the_answer_before_to_its_own(engine: Engine) -> None:
    sent(engine, 501, 1_000, 400)
    assert usual(engine) == 400.0


@pytest.mark.parametrize(
    ("many", "then", "usual_ms"),
    [
        (100, "sent_at = completed_at - INTERVAL 250000 MICROSECOND", 250.0),
        (100, "sends = 2, completed_at = completed_at + INTERVAL 1 HOUR WHERE nonce MOD 3 = 0", 400.0),
        (20_000, "completed_at = completed_at + INTERVAL (nonce - 17000) * 3 SECOND WHERE nonce > 17000", 400.0),
    ],
    ids=["after a rest from the mark", "sent again: not counted", "an hour of slowness is not usual"],
)
def test_a_rest_and_a_few_slow_ones_count_for_nothing(engine: Engine, many: int, then: str, usual_ms: float) -> None:
    sent(engine, 1, many, 400)
    change_sql(engine, f"UPDATE nonce_requests SET {then}")
    assert usual(engine) == usual_ms


def test_of_a_few_operations_nothing_is_usual(engine: Engine) -> None:
    assert usual(engine) is None
    sent(engine, 1, LOOKED_AT_MIN - 1, 400)
    assert usual(engine) is None
