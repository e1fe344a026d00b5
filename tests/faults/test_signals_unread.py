"""Signals that Temporal acknowledged and nobody had read when their run ended: each is recorded
once and applied (I13)."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle, writer_policy
from tests.faults.product import Product
from workflows import messages

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# So small a history that a hundred signals fill it; Temporal's own limit is 50 MiB.
HISTORY_BYTES_MAX = 2_000_000
SIGNAL_BYTES = 28_000


@pytest.fixture(scope="module")
def temporal() -> Iterator[EmbeddedTemporal]:
    options = (
        "--dynamic-config-value", f"limit.historySize.error={HISTORY_BYTES_MAX}",
        "--dynamic-config-value", f"limit.historySize.warn={HISTORY_BYTES_MAX // 2}",
    )  # fmt: skip
    with EmbeddedTemporal(None, options=options) as server:
        yield server


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Product]:
    with Product(tmp_path, database, temporal.address, latency_ms=5) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        yield product


def change(number: int, size: int = 0) -> dict[str, Any]:
    payload = {"number": number, "text": Random(number).randbytes(size // 2).hex()}  # what can't be compressed well
    return {"entity_type": "unit", "entity_id": f"U{number % 7}", "event_type": "booking_created", "payload": payload}


async def signal(client: Client, host: str, numbers: range, size: int = 0) -> None:
    """Signal-with-start, as any SDK can do it: no argument for the workflow, no key for the change.

    The one that finds the history full is refused, and ends the run; its sender sends it again, which begins the next
    run.
    """
    for number in numbers:
        for last in (False, True):
            try:
                await client.start_workflow(
                    messages.WORKFLOW_TYPE,
                    id=messages.workflow_id(host),
                    task_queue=messages.TASK_QUEUE,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    start_signal="submit_change",
                    start_signal_args=[change(number, size)],
                )
                break
            except RPCError as error:
                if last or "history size exceeds limit" not in str(error):
                    raise


async def reset(client: Client, host: str, run_id: str, *, to_first: bool) -> None:
    """As `temporal workflow reset` does it: to the end of the run's first or last finished task."""
    handle = client.get_workflow_handle(messages.workflow_id(host), run_id=run_id)
    tasks = [
        event.event_id
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=run_id),
            reason="a test",
            workflow_task_finish_event_id=tasks[0 if to_first else -1],
            request_id=str(uuid.uuid4()),
        )
    )


async def run_id(client: Client, host: str) -> str:
    found = (await writer_handle(client, host).describe()).run_id
    assert found
    return found


async def begin_new_run(client: Client, product: Product) -> None:
    """As `starter.py` does it with new settings."""
    policy = writer_policy(product.settings.of_host(product.host))
    await writer_handle(client, product.host).signal("configure", dataclasses.replace(policy, probe_ms=6_000))


async def closed_runs(client: Client, host: str) -> list[WorkflowExecutionStatus | None]:
    listed = client.list_workflows(f"WorkflowId = '{messages.workflow_id(host)}'")
    return [run.status async for run in listed if run.status != WorkflowExecutionStatus.RUNNING]


def check_recorded_once_and_applied(product: Product, count: int) -> None:
    product.wait_for("all fates", lambda: product.all_have_fates(count), 45)
    numbers = [
        row["number"] for row in product.sql("SELECT JSON_VALUE(payload, '$.number') AS number FROM outbox_events")
    ]
    assert sorted(int(number) for number in numbers) == list(range(count))
    assert set(product.fates().values()) == {"APPLIED"}
    product.check_clean()


def test_the_server_ended_the_run_because_of_its_size(product: Product) -> None:
    product.ask(lambda client: signal(client, product.host, range(5)))
    product.wait_for("the first fates", lambda: product.all_have_fates(5), 30)
    product.children["worker"].kill()
    product.ask(lambda client: signal(client, product.host, range(5, 180), SIGNAL_BYTES))
    assert WorkflowExecutionStatus.TERMINATED in product.ask(lambda client: closed_runs(client, product.host))
    product.start_worker("worker-2")
    check_recorded_once_and_applied(product, 180)


def test_an_operator_terminated_the_run(product: Product) -> None:
    product.ask(lambda client: signal(client, product.host, range(5)))
    product.wait_for("the first fates", lambda: product.all_have_fates(5), 30)
    product.children["worker"].kill()
    product.ask(lambda client: signal(client, product.host, range(5, 40)))
    product.ask(lambda client: writer_handle(client, product.host).terminate("a test"))
    product.start_worker("worker-2")
    product.start_writer()
    check_recorded_once_and_applied(product, 40)


@pytest.mark.parametrize("to_first", [True, False], ids=["to its first task", "to its last task"])
def test_an_operator_reset_the_run(product: Product, to_first: bool) -> None:
    product.ask(lambda client: signal(client, product.host, range(10)))
    product.wait_for("the first fates", lambda: product.all_have_fates(10), 30)
    product.children["worker"].kill()
    product.ask(lambda client: signal(client, product.host, range(10, 40)))
    current = product.ask(lambda client: run_id(client, product.host))
    product.ask(lambda client: reset(client, product.host, current, to_first=to_first))
    product.ask(lambda client: signal(client, product.host, range(40, 50)))
    product.start_worker("worker-2")
    check_recorded_once_and_applied(product, 50)


def test_an_operator_reset_a_run_whose_send_nobody_had_started(product: Product) -> None:
    """Temporal then never times out that activity, nor any after it: the run must not wait for it."""
    product.ask(lambda client: signal(client, product.host, range(5)))
    product.wait_for("the first fates", lambda: product.all_have_fates(5), 30)
    product.wait_for("its work to end", lambda: product.ask(lambda client: is_idle(client, product.host)))
    product.children["worker"].kill()
    product.start_worker("worker-2")  # later, or it would know that the first has ended, and give up its sends
    product.ask(lambda client: signal(client, product.host, range(5, 10)))
    current = product.ask(lambda client: run_id(client, product.host))
    product.wait_for(
        "a send to the queue of the worker that is gone",
        lambda: product.ask(lambda client: waiting_sends(client, product.host)),
        8,
    )
    product.ask(lambda client: signal(client, product.host, range(10, 11)))
    product.wait_for(
        "a task that ended after it", lambda: product.ask(lambda client: keeps_a_waiting_send(client, product.host)), 8
    )
    product.ask(lambda client: reset(client, product.host, current, to_first=False))
    check_recorded_once_and_applied(product, 11)


async def is_idle(client: Client, host: str) -> bool:
    """Whether no worker has anything of it."""
    described = (await writer_handle(client, host).describe()).raw_description
    return not described.pending_activities and not described.HasField("pending_workflow_task")


async def waiting_sends(client: Client, host: str) -> int:
    """Sends that no worker has begun."""
    described = await writer_handle(client, host).describe()
    pending = described.raw_description.pending_activities
    return sum(one.activity_type.name == "send" and not one.HasField("last_started_time") for one in pending)


async def keeps_a_waiting_send(client: Client, host: str) -> bool:
    """Whether a reset to the run's last finished task keeps a send that no worker has begun."""
    waiting, is_kept = set(), False
    async for event in writer_handle(client, host).fetch_history_events():
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                if event.activity_task_scheduled_event_attributes.activity_type.name == "send":
                    waiting.add(event.event_id)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                waiting.discard(event.activity_task_started_event_attributes.scheduled_event_id)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                waiting.discard(event.activity_task_timed_out_event_attributes.scheduled_event_id)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                is_kept = bool(waiting)
    return is_kept


def test_an_operator_reset_a_run_that_others_had_followed(product: Product) -> None:
    """Temporal gives the new run the signals of all that followed once more; those that were
    recorded are not recorded again."""
    product.ask(lambda client: signal(client, product.host, range(10)))
    product.wait_for("the first fates", lambda: product.all_have_fates(10), 30)
    first = product.ask(lambda client: run_id(client, product.host))
    product.ask(lambda client: begin_new_run(client, product))
    product.wait_for("a new run", lambda: product.ask(lambda client: run_id(client, product.host)) != first, 30)
    product.ask(lambda client: signal(client, product.host, range(10, 20)))
    product.wait_for("more fates", lambda: product.all_have_fates(20), 30)
    product.children["worker"].kill()
    product.ask(lambda client: signal(client, product.host, range(20, 30)))
    product.ask(lambda client: reset(client, product.host, first, to_first=False))
    product.start_worker("worker-2")
    check_recorded_once_and_applied(product, 30)


def test_an_update_is_answered_when_the_change_is_recorded(product: Product) -> None:
    async def submit(client: Client) -> Any:
        return await writer_handle(client, product.host).execute_update("submit", change(0), id="the first booking")

    product.start_writer()
    answers = [product.ask(submit) for _ in range(2)]
    product.wait_for("its fate", lambda: product.all_have_fates(1), 30)
    assert answers[0]["change_id"] == answers[1]["change_id"]
    assert [row["id"] for row in product.sql("SELECT id FROM outbox_events")] == [answers[0]["change_id"]]
