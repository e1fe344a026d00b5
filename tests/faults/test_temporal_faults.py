"""Level L4: a real Temporal server. Continue-as-new under a flood of signals, and tasks left for a
session that is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import exceptions, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oldhost_sync.policy.machine.actions import Send
from oldhost_sync.policy.machine.events import SendEnded
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle, writer_policy
from tests.faults.product import Product
from workflows.messages import workflow_id

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# So short a history that a flood of signals fills many.
EVENTS_SUGGESTED = 150
# The flood goes on until the writer has come to its third run: on a busy machine many signals come in one task.
SIGNALS, SIGNALS_MAX, RUNS = 300, 3_000, 3
LOOK_EVERY = 30
# A start reads the emergencies that wait, then the rest. A history that grows too long meanwhile starts no new run for
# thousands of events: that run would only begin to read again.
PAGES_OF_A_START = 2


@pytest.fixture(scope="module")
def temporal() -> Iterator[EmbeddedTemporal]:
    options = ("--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={EVENTS_SUGGESTED}")
    with EmbeddedTemporal(None, options=options) as server:
        yield server


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Product]:
    with Product(tmp_path, database, temporal.address, latency_ms=5) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_writer()
        yield product


async def flood(client: Client, product: Product, *, renewing: bool) -> int:
    """Signals as fast as the server takes them, until RUNS runs were seen; now and then new settings, each of which
    starts a new run. Gives how many.
    """
    writer = writer_handle(client, product.host)
    policy = writer_policy(product.settings.of_host(product.host))
    seen: set[str | None] = set()
    for number in range(SIGNALS_MAX):
        if number % LOOK_EVERY == 0:
            seen.add((await writer.describe()).run_id)
            if number >= SIGNALS and len(seen) >= RUNS:
                return number
        change = {
            "entity_type": "unit",
            "entity_id": f"U{number % 40}",
            "event_type": "booking_created",
            "payload": {"number": number},
            "idempotency_key": f"flood-{number}",
        }
        await writer.signal("submit_change", change)
        if renewing and number % LOOK_EVERY == LOOK_EVERY - 1:
            await writer.signal("configure", dataclasses.replace(policy, probe_ms=policy.probe_ms + number))
    raise AssertionError(f"{SIGNALS_MAX} signals brought the writer to {len(seen)} runs")


async def pages_read(client: Client, host: str) -> int:
    """How many pages of what waits the writer's run has read from MariaDB."""
    history = await writer_handle(client, host).fetch_history()
    asked = {
        event.event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "load_outstanding"
    }
    done = {event.activity_task_completed_event_attributes.scheduled_event_id for event in history.events}
    return len(asked & done)


async def runs(client: Client, host: str) -> int:
    """How many runs the writer has had."""
    handle = writer_handle(client, host)
    run_id: str | None = (await handle.describe()).run_id
    count = 0
    while run_id:
        count += 1
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id or None
    return count


@pytest.mark.timeout(240)
@pytest.mark.parametrize("renewing", [True, False], ids=["by new settings", "by the length of its history"])
def test_trap_17_no_signal_is_lost_while_the_writer_continues_as_new(product: Product, renewing: bool) -> None:
    product.wait_for(
        "the writer to have read what waits",
        lambda: product.ask(lambda client: pages_read(client, product.host)) >= PAGES_OF_A_START,
    )
    signals = product.ask(lambda client: flood(client, product, renewing=renewing))
    product.wait_for("all fates", lambda: product.all_have_fates(signals), 120)
    keys = {row["idempotency_key"] for row in product.sql("SELECT idempotency_key FROM outbox_events")}
    assert keys == {f"flood-{number}" for number in range(signals)}
    assert set(product.fates().values()) == {"APPLIED"}
    product.check_clean()
    assert product.ask(lambda client: runs(client, product.host)) >= RUNS
    for entity in range(40):
        sent = [
            one["body"]["payload"]["number"] for one in product.journal() if one["body"]["entity_id"] == f"U{entity}"
        ]
        assert sent == sorted(sent)


@workflow.defn(name="StaleSend")
class StaleSend:
    """Sends to a session's queue, as a writer whose task was left there; in the writer's place, since its id names the
    host.
    """

    @workflow.run
    async def run(self, queue: str, batch: Send) -> SendEnded:
        report: SendEnded = await workflow.execute_activity(
            "send",
            batch,
            task_queue=queue,
            result_type=SendEnded,
            schedule_to_start_timeout=timedelta(seconds=2),
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return report


async def send_stale(client: Client, product: Product, queue: str, batch: Send) -> Any:
    async with Worker(client, task_queue="stale", workflows=[StaleSend], workflow_runner=UnsandboxedWorkflowRunner()):
        return await client.execute_workflow(
            StaleSend.run,
            args=[queue, batch],
            id=workflow_id(product.host),
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
            task_queue="stale",
        )


def session_of(product: Product) -> dict[str, Any]:
    product.wait_for("an open session", lambda: product.status()["session"]["phase"] == "open")
    found: dict[str, Any] = product.status()["session"]
    return found


def test_a_stale_task_for_an_older_epoch_is_refused_and_sends_nothing(product: Product) -> None:
    session = session_of(product)
    batch = Send(1, 0, session["epoch"] - 1, (1, 2))
    report = product.ask(lambda client: send_stale(client, product, session["task_queue"], batch))
    assert not report.session_open
    assert [fate.outcome for fate in report.fates] == ["WAITING", "WAITING"]
    assert product.journal() == []
    product.start_writer()
    assert session_of(product)["epoch"] == session["epoch"] + 1


def test_a_task_on_a_dead_workers_queue_never_starts(product: Product) -> None:
    session = session_of(product)
    product.children["worker"].kill()
    batch = Send(1, 0, session["epoch"], (1,))
    with pytest.raises(WorkflowFailureError) as failure:
        product.ask(lambda client: send_stale(client, product, session["task_queue"], batch))
    error = failure.value.cause
    assert isinstance(error, exceptions.ActivityError)
    assert isinstance(error.cause, exceptions.TimeoutError)
    assert error.cause.type is exceptions.TimeoutType.SCHEDULE_TO_START
    assert product.journal() == []
