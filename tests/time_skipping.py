"""Temporal's time-skipping test server, one for each test that asks."""

from __future__ import annotations

from temporalio.testing import WorkflowEnvironment

from oldhost_sync.stack.programs import find_program
from oldhost_sync.temporal.client import DATA_CONVERTER

# The SDK gives a new server five seconds for its first answer, and has no setting for that; at load 20 it takes longer.
STARTS_MAX = 4
TOO_SLOW = "did not start within"


async def start_time_skipping() -> WorkflowEnvironment:
    """A new server. One that is too slow is ended by the SDK, and the next one finds the program in memory."""
    for _ in range(STARTS_MAX - 1):
        try:
            return await _start()
        except RuntimeError as error:
            if TOO_SLOW not in str(error):
                raise
    return await _start()


async def _start() -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_time_skipping(
        data_converter=DATA_CONVERTER, test_server_existing_path=find_program("temporal-test-server")
    )
