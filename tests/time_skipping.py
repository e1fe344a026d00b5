"""Temporal's time-skipping test server, one for each test that asks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from oldhost_sync.stack.machine import find_program
from oldhost_sync.temporal.client import DATA_CONVERTER

# The SDK gives a new server five seconds for its first answer, and has no setting for that; at load 20 it takes longer.
STARTS_MAX = 4
TOO_SLOW = "did not start within"

# The server counts in milliseconds, and forgets an activity's limit over all attempts if it ends with a whole second:
# it then retries for ever, in one run of a thousand. Half a millisecond more, and no limit ends so.
OFF_THE_SECOND = timedelta(microseconds=500)


class LimitsOffTheSecond(Interceptor):
    """For the workers of a time-skipping server: each limit over all of an activity's attempts is one it keeps."""

    def workflow_interceptor_class(self, _input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, call: StartActivityInput) -> Any:
        if call.schedule_to_close_timeout is not None:
            call.schedule_to_close_timeout += OFF_THE_SECOND
        return super().start_activity(call)


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
