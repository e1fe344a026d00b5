"""Retention's pace, and when people are told that it falls behind."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from oldhost_sync.policy import limits
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.retention import BEHIND, Pruner
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store import retention
from oldhost_sync.store.errors import StatementRefused
from tests.integration.relay.listening import keep
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb
LONG = KINDS[BEHIND].opens_after_s


def pruner_of(engine: Engine, *, rows: int = 2, ahead_s: float = 0.0) -> Pruner:
    transactions = Transactions(engine)
    return Pruner(
        transactions,
        Leadership(transactions, HOST, "one", 5.0),
        RelayPace(retention_rows=rows),
        Conditions(),
        wall=lambda: time.time() - ahead_s,
    )


def old_changes(engine: Engine, count: int) -> None:
    for number in range(count):
        recorded(engine, entity_id=f"u{number}")
    change_sql(
        engine,
        "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6) - INTERVAL 100 DAY, outcome = 'APPLIED', "
        "fate_sequence = id",
    )


def open_alerts(engine: Engine) -> list[str]:
    return [row["message"] for row in rows(engine, "SELECT message FROM alerts WHERE is_open")]


def test_batches_follow_each_other_until_the_pass_is_through_and_then_comes_a_rest(engine: Engine) -> None:
    old_changes(engine, 5)
    pruner = pruner_of(engine)

    async def rounds() -> list[float]:
        return [await pruner.run_once(float(number)) for number in range(3)]

    first, second, last = asyncio.run(rounds())
    assert (first < 2, second < 2, last) == (True, True, limits.RETENTION_INTERVAL_SECONDS)
    assert rows(engine, "SELECT id FROM outbox_events") == []
    assert rows(engine, "SELECT pruned_sequence FROM feed_horizon") == [{"pruned_sequence": 5}]


def test_a_pass_that_takes_hours_is_told_of_until_it_is_through(engine: Engine) -> None:
    old_changes(engine, 5)
    pruner = pruner_of(engine)

    async def rounds() -> None:
        await pruner.run_once(0.0)
        await pruner.run_once(LONG)
        await keep(engine, pruner.conditions, LONG)
        assert ["more rows are added than deleted" in each for each in open_alerts(engine)] == [True]
        await pruner.run_once(LONG + 1)
        await keep(engine, pruner.conditions, LONG + 1)

    asyncio.run(rounds())
    assert open_alerts(engine) == []


def test_a_pass_that_fails_for_hours_is_told_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(*_: object, **__: object) -> None:
        raise OperationalError("DELETE", {}, Exception(1815, "too slow"))

    monkeypatch.setattr(retention, "prune", too_slow)
    pruner = pruner_of(engine)

    async def rounds() -> None:
        for now in (0.0, LONG):
            with pytest.raises(StatementRefused):
                await pruner.run_once(now)
            await keep(engine, pruner.conditions, now)

    asyncio.run(rounds())
    assert ["old rows can't be deleted" in each for each in open_alerts(engine)] == [True]


def test_nothing_is_forgotten_by_a_clock_that_is_far_ahead(engine: Engine) -> None:
    old_changes(engine, 1)
    pruner = pruner_of(engine, ahead_s=2 * 86_400)
    assert asyncio.run(pruner.run_once(0.0)) == limits.RETENTION_INTERVAL_SECONDS
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 1
    asyncio.run(keep(engine, pruner.conditions))
    assert ["clock" in each for each in open_alerts(engine)] == [True]
