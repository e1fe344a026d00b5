"""Plays recorded histories again with today's code: `python -m tests.replay.replayer FILE…`; exit 1
when one does not fit."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowReplayResult

from oldhost_sync.temporal.client import DATA_CONVERTER
from workflows.messages import workflow_id
from workflows.sync_writer import SyncWriterWorkflow


def history_of(path: Path) -> WorkflowHistory:
    """Under the id that it was recorded with: a writer tells people when its argument names a host
    that is not its id's."""
    text = path.read_text()
    payload = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]["input"]["payloads"][0]
    plain = base64.b64decode(payload["metadata"]["encoding"]) == b"json/plain"
    host = json.loads(base64.b64decode(payload["data"]))["host"] if plain else path.stem
    return WorkflowHistory.from_json(workflow_id(host), text)


def marks(history: WorkflowHistory) -> set[str]:
    """The patches that its run has."""
    recorded = [event.marker_recorded_event_attributes for event in history.events]
    details = [one.details["patch-data"] for one in recorded if one.marker_name == "core_patch"]
    return {json.loads(payloads.payloads[0].data)["id"] for payloads in details}


async def replay(history: WorkflowHistory) -> WorkflowReplayResult:
    """The result's `replay_failure` is None when every command came as it is recorded."""
    replayer = Replayer(workflows=[SyncWriterWorkflow], data_converter=DATA_CONVERTER)
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


async def replay_all(histories: list[WorkflowHistory]) -> int:
    failures = [(history.workflow_id, (await replay(history)).replay_failure) for history in histories]
    for name, failure in failures:
        print(f"{name}: {failure or 'replayed'}")
    return 1 if any(failure for _, failure in failures) else 0


if __name__ == "__main__":
    status = asyncio.run(replay_all([history_of(Path(each)) for each in sys.argv[1:]]))
    sys.stdout.flush()
    os._exit(status)  # the SDK's threads may still run, and now and then abort an interpreter that takes itself apart
