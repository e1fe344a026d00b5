"""How long a worker takes to rebuild a writer from its whole history: after a restart, before the first new task.

The longest history there is: a flood of emergencies, each of which the relay signals at once, until Temporal suggests a
new run. Nothing of an ordinary day fills a run faster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from bench.deployment import Deployment
from bench.result import Result
from bench.stage import Stage
from bench.workload import emergency, record
from oldhost_sync.temporal.client import DATA_CONVERTER
from workflows.sync_writer import SyncWriterWorkflow

LATENCY_MS = 20
EMERGENCIES_PER_SECOND = 40
EMERGENCIES_MAX = 4_000


def replay_table(result: Result, histories: Mapping[str, WorkflowHistory]) -> None:
    """Add a table: each history replayed from its first event."""
    result.table(
        "Replay from the first event",
        ("history", "events", "s"),
        [(name, len(history.events), _replay_seconds(history)) for name, history in histories.items()],
    )


def longest_history(stage: Stage) -> WorkflowHistory:
    """The history of a whole run, from its start to the new run that Temporal suggested."""
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        first = deployment.run_id()
        for number in range(EMERGENCIES_MAX):
            record(deployment.engine, deployment.host, emergency(f"locked-out-{number}", number))
            time.sleep(1 / EMERGENCIES_PER_SECOND)
            if number % EMERGENCIES_PER_SECOND == 0 and deployment.run_id() != first:
                return deployment.histories()[-1]
    raise RuntimeError(f"{EMERGENCIES_MAX} emergencies have not filled a run")


def _replay_seconds(history: WorkflowHistory) -> float:
    replayer = Replayer(workflows=[SyncWriterWorkflow], data_converter=DATA_CONVERTER)
    began = time.perf_counter()
    asyncio.run(replayer.replay_workflow(history))
    return time.perf_counter() - began
