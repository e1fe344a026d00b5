"""Which changes a restored database has lost: what the relay handed to the writer is in the histories of the writer's
runs, as far as Temporal still has them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.environment import in_database, settings
from oldhost_sync.policy.changes import ChangeRef, from_wire
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Settings
from oldhost_sync.store.ledger.reservation import missing_changes
from oldhost_sync.temporal.client import connect
from workflows.messages import EnqueueBatch, workflow_id

# A run lasts for hours or days, so this many go back for months.
RUNS_READ_MAX = 200


def add_to(app: typer.Typer) -> None:
    app.command("lost-changes")(show_lost)


def show_lost(
    hours: Annotated[int, typer.Option(min=1, max=24 * 90, help="Only changes accepted within this many hours.")] = 72,
    as_json: AsJson = False,
) -> None:
    """After a restore: the changes that were handed to the writer and that the database has lost."""
    config = settings()
    known, runs = asyncio.run(_handed_over(config, datetime.now(UTC) - timedelta(hours=hours)))
    lost = in_database(config, lambda connection: missing_changes(connection, config.host, known))
    if as_json:
        print_json([_as_json(ref) for ref in lost])
        return
    span = f"{len(known)} changes handed to the writer in {hours} h (read from {quantity(runs, 'run')})"
    if not lost:
        console().print(f"Of {span}, none is lost.", markup=False)
        return
    lines = [(ref.change_id, ref.priority_class.value, _entity(ref), ref.event_type, _accepted(ref)) for ref in lost]
    console().print(rows("", ("id", "class", "entity", "event", "accepted"), lines))
    console().print(f"{len(lost)} of {span} are lost. See docs/backup.md for what to do.", markup=False)


async def _handed_over(config: Settings, since: datetime) -> tuple[list[ChangeRef], int]:
    """The changes by id, each once, and how many runs were read.

    Those that Temporal lists, and the ones before each of them: the newest may not be listed yet.
    """
    client = await connect(keys=encryption_keys(config))
    runs: list[str | None] = [None, *await _listed(client, config.host, since)]
    found: dict[tuple[int, int], ChangeRef] = {}
    read: set[str] = set()
    for number, asked in enumerate(runs):
        if asked in read:
            continue
        run_id, before, refs = await _read_run(client, config.host, asked)
        read |= {run_id} - {""}
        recent = [ref for ref in refs if ref.accepted_at_ms >= since.timestamp() * 1000]
        found |= {(ref.change_id, ref.accepted_at_ms): ref for ref in recent}
        if before and before not in runs and (recent or not refs) and number < RUNS_READ_MAX:
            runs.append(before)
    return [found[key] for key in sorted(found)], len(read)


async def _listed(client: Client, host: str, since: datetime) -> list[str]:
    """The runs of the host's writer that had not ended by then: also those that a terminated one was followed by."""
    listed = client.list_workflows(f"WorkflowId = '{workflow_id(host)}'", limit=RUNS_READ_MAX)
    return [run.run_id async for run in listed if run.close_time is None or run.close_time >= since]


async def _read_run(client: Client, host: str, run_id: str | None) -> tuple[str, str, list[ChangeRef]]:
    """The run's id, that of the run before, if any, and the changes signalled to it; nothing if its history is gone."""
    read_id, before, refs = "", "", []
    try:
        async for event in client.get_workflow_handle(workflow_id(host), run_id=run_id).fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                read_id = run_id or started.original_execution_run_id
                before = started.continued_execution_run_id
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                refs += await _read_signal(client, event.workflow_execution_signaled_event_attributes)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
    return read_id, before, refs


async def _read_signal(client: Client, signal: Any) -> list[ChangeRef]:
    if signal.signal_name != "enqueue":
        return []
    (batch,) = await client.data_converter.decode(list(signal.input.payloads), [EnqueueBatch])
    return [from_wire(item) for item in batch.refs]


def _entity(ref: ChangeRef) -> str:
    return f"{ref.entity_type}/{ref.entity_id}"


def _accepted(ref: ChangeRef) -> datetime:
    return datetime.fromtimestamp(ref.accepted_at_ms / 1000, UTC)


def _as_json(ref: ChangeRef) -> dict[str, object]:
    return {
        "change_id": ref.change_id,
        "priority_class": ref.priority_class.value,
        "entity_type": ref.entity_type,
        "entity_id": ref.entity_id,
        "event_type": ref.event_type,
        "accepted_at": _accepted(ref),
    }
