"""The caller's trace context: kept with the change, whatever it is worth, and no part of what the change is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from oldhost_sync import record_change, record_changes
from oldhost_sync.store.intake.schedule import due, record_due
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.change_forms import TRACEPARENT, TRACEPARENTS
from tests.integration.store.writing import HOST, ON_MARIADB, change_sql, recorded, rows

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("door")]

OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
CHANGE: dict[str, Any] = {"entity_type": "unit", "entity_id": "101", "event_type": "checked_in", "payload": {}}


@contextmanager
def within_a_span(traceparent: str) -> Iterator[None]:
    """What the application's OpenTelemetry calls its current span."""
    _, trace_id, span_id, flags = traceparent.split("-")
    context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(int(flags, 16)))
    with use_span(NonRecordingSpan(context)):
        yield


def kept(engine: Engine, table: str = "outbox_events") -> list[str | None]:
    return [row["traceparent"] for row in rows(engine, f"SELECT traceparent FROM {table} ORDER BY id")]


def test_a_valid_one_is_kept_and_any_other_is_as_none(engine: Engine) -> None:
    for given in TRACEPARENTS:
        recorded(engine, traceparent=given)
    recorded(engine)
    assert dict(zip([*TRACEPARENTS, "none"], kept(engine), strict=True)) == {**TRACEPARENTS, "none": None}


def test_a_repetition_from_another_trace_is_the_same_change_and_the_first_trace_stays(engine: Engine) -> None:
    first = recorded(engine, idempotency_key="k-1", traceparent=TRACEPARENT)
    again = recorded(engine, idempotency_key="k-1", traceparent=OTHER)
    assert (again.change_id, again.duplicate) == (first.change_id, True)
    assert kept(engine) == [TRACEPARENT]


@ON_MARIADB
def test_a_scheduled_change_has_it_when_it_is_due(engine: Engine) -> None:
    recorded(engine, traceparent=TRACEPARENT, not_before=datetime.now(UTC) + timedelta(days=1))
    assert kept(engine, "scheduled_changes") == [TRACEPARENT]
    change_sql(engine, "UPDATE scheduled_changes SET not_before = created_at")
    (ready,) = run_in_transaction(engine, lambda connection: due(connection, HOST, 10))
    run_in_transaction(engine, lambda connection: record_due(connection, ready))
    assert kept(engine) == [TRACEPARENT]


class TestInPython:
    """Without the stored procedure."""

    @pytest.fixture
    def door(self) -> None:
        """None but Python's."""

    def test_each_change_of_a_batch_has_its_own_or_the_span_of_the_application(self, engine: Engine) -> None:
        with within_a_span(OTHER), engine.begin() as connection:
            record_changes(connection, [CHANGE, {**CHANGE, "traceparent": TRACEPARENT}], host=HOST)
        assert kept(engine) == [OTHER, TRACEPARENT]

    def test_the_current_span_of_the_application_is_taken_unless_one_is_given(self, engine: Engine) -> None:
        for given in (None, TRACEPARENT, ""):
            with within_a_span(OTHER), engine.begin() as connection:
                record_change(connection, host=HOST, traceparent=given, **CHANGE)
        assert kept(engine) == [OTHER, TRACEPARENT, None]

    @ON_MARIADB
    def test_so_is_that_of_asyncio(self, engine: Engine) -> None:
        async def record() -> None:
            driver = create_async_engine(engine.url.set(drivername="mysql+asyncmy"))
            async with AsyncSession(driver) as session, session.begin():
                with within_a_span(OTHER):
                    await session.run_sync(record_change, host=HOST, **CHANGE)
            await driver.dispose()

        asyncio.run(record())
        assert kept(engine) == [OTHER]
