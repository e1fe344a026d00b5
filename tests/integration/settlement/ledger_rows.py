"""Ledger rows of some days ago, as if OldHost had answered then."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from sqlalchemy.engine import Engine

from oldhost_sync.settlement.day_settlement import SETTLED_AFTER, SettlementStep, settle_next
from oldhost_sync.settlement.settlement_file import SettlementFolder
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.store.writing import HOST, change_sql

_ROW = "host, nonce, idempotency_key, change_id, epoch, body, status, answer, sends, created_at, completed_at"


# Yesterday can be settled only some minutes after midnight: until then these tests count from the day before.
TODAY_SQL = f"DATE(UTC_TIMESTAMP() - INTERVAL {SETTLED_AFTER // timedelta(seconds=1)} SECOND)"


def days_ago(days: int) -> date:
    return (datetime.now(UTC) - SETTLED_AFTER).date() - timedelta(days=days)


def ahead() -> int:
    """How many days the calendar is ahead of `days_ago(0)`: one in the first minutes of a day."""
    return (datetime.now(UTC).date() - days_ago(0)).days


def body_of(nonce: int) -> bytes:
    return f'{{"payload": {{"guest": "Ms Nowak {nonce}"}}}}'.encode()


def ended(
    engine: Engine, *nonces: int, ago: int, status: str = "APPLIED", answer: str = "applied", counts: bool = True
) -> None:
    """Operations that ended `ago` days ago, a second after one another from midnight on."""
    values = ", ".join(
        f"('{HOST}', {nonce}, 'key of {nonce}', {nonce + 1000}, 1, '{body_of(nonce).decode()}', '{status}', "
        f"'{answer}', 1, {TODAY_SQL} - INTERVAL {ago} DAY, {TODAY_SQL} - INTERVAL {ago} DAY + INTERVAL {nonce} SECOND)"
        for nonce in nonces
    )
    change_sql(engine, f"INSERT INTO nonce_requests ({_ROW}) VALUES {values}".replace("%", "%%"))
    if counts:
        change_sql(
            engine,
            f"REPLACE INTO nonce_ledger (host, next_nonce, last_applied_nonce) "
            f"VALUES ('{HOST}', {max(nonces) + 1}, {max(nonces)})",
        )


def settle(engine: Engine, path: Path) -> SettlementStep:
    return run_in_transaction(engine, lambda connection: settle_next(connection, SettlementFolder(path, HOST)))


def settle_all(engine: Engine, path: Path) -> list[date]:
    """The days that were settled, the oldest first."""
    days = []
    while (step := settle(engine, path)).settled is not None:
        days.append(step.settled.day)
    return days
