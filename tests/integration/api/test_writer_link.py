"""The link to the writer over a real Temporal: answers, refusals, and every way of not being there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateStage
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writer_link import TemporalWriterLink
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, NoRoom, OperatorAct, workflow_id

if TYPE_CHECKING:
    from oldhost_sync.stack.temporal import EmbeddedTemporal


@workflow.defn(name=WORKFLOW_TYPE)
class StandInWriter:
    """Answers as the writer does, and can be resumed only after a pause."""

    def __init__(self) -> None:
        self.paused_by = ""
        self.held = False
        self.at_work = 0
        self.at_work_most = 0
        self.flushed = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def status(self) -> dict[str, Any]:
        return {"paused_by": self.paused_by}

    @workflow.query
    def find(self, entity_type: str, entity_id: str) -> dict[str, Any]:
        return {"entity": [entity_type, entity_id]}

    @workflow.update
    async def pause(self, request: OperatorAct) -> str:
        self.paused_by = request.operator
        return "paused"

    @workflow.update
    async def resume(self, request: OperatorAct) -> str:
        return "resumed"

    @resume.validator
    def check_resume(self, request: OperatorAct) -> None:
        if not self.paused_by:
            raise ApplicationError("the writer is not paused")

    @workflow.query
    def acts(self) -> list[int]:
        return [self.at_work, self.at_work_most, self.flushed]

    @workflow.signal
    def hold(self, held: bool) -> None:
        self.held = held

    @workflow.update
    async def flush(self, request: OperatorAct) -> int:
        self.at_work += 1
        self.at_work_most = max(self.at_work_most, self.at_work)
        await workflow.wait_condition(lambda: not self.held)
        self.at_work -= 1
        self.flushed += 1
        return 3

    @workflow.update
    async def retry(self, request: OperatorAct) -> str:
        return "retried"

    @retry.validator
    def check_retry(self, request: OperatorAct) -> None:
        raise NoRoom("3 acts wait to be recorded, the first is 'flush' by ana: repeat yours in a moment")


@workflow.defn
class Another:
    @workflow.run
    async def run(self) -> None:
        """For a worker that knows no writer."""


def run_with_writer(
    server: EmbeddedTemporal, host: str, scenario: Callable[[TemporalWriterLink], Awaitable[None]]
) -> None:
    async def run() -> None:
        async def connect() -> Client:
            return await Client.connect(server.address)

        client = await connect()
        worker = Worker(
            client, task_queue=TASK_QUEUE, workflows=[StandInWriter], workflow_runner=UnsandboxedWorkflowRunner()
        )
        async with worker:
            handle = await client.start_workflow(StandInWriter.run, id=workflow_id(host), task_queue=TASK_QUEUE)
            await scenario(TemporalWriterLink(host, connect))
            with contextlib.suppress(RPCError):  # a scenario may have ended it
                await handle.terminate()

    asyncio.run(run())


def test_queries_and_acts_reach_the_writer(temporal_dev_server: EmbeddedTemporal) -> None:
    async def scenario(link: TemporalWriterLink) -> None:
        assert await link.query("find", "unit", "12B") == {"entity": ["unit", "12B"]}
        assert await link.update("pause", OperatorAct(operator="anna", reason="why")) == "paused"
        assert await link.query("status") == {"paused_by": "anna"}
        assert await link.update("flush", OperatorAct(operator="anna")) == "flush: 3 waiting keys"

    run_with_writer(temporal_dev_server, "link-answers", scenario)


def test_a_refusal_comes_with_the_writer_s_reason(temporal_dev_server: EmbeddedTemporal) -> None:
    async def scenario(link: TemporalWriterLink) -> None:
        with pytest.raises(Problem) as refused:
            await link.update("resume", OperatorAct(operator="anna"))
        assert (refused.value.status, refused.value.content["detail"]) == (409, "the writer is not paused")
        with pytest.raises(Problem) as unknown:
            await link.query("nonsense")
        assert unknown.value.status == 409
        assert await link.query("status") == {"paused_by": ""}

    run_with_writer(temporal_dev_server, "link-refuses", scenario)


def _kind(problem: Problem) -> tuple[int, str]:
    return problem.status, str(problem.content["type"]).rpartition(":")[2]


FLUSH = OperatorAct(operator="ana", reason="why")


async def _held(server: EmbeddedTemporal, host: str) -> WorkflowHandle[Any, Any]:
    """The stand-in, which finishes no flush until `hold` says so."""
    handle = (await Client.connect(server.address)).get_workflow_handle(workflow_id(host))
    await handle.signal("hold", True)
    return handle


def test_of_thirty_acts_at_once_all_are_carried_out_a_few_at_a_time(temporal_dev_server: EmbeddedTemporal) -> None:
    async def scenario(link: TemporalWriterLink) -> None:
        answers = await asyncio.gather(*(link.update("flush", FLUSH) for _ in range(30)))
        assert set(answers) == {"flush: 3 waiting keys"}
        _, most, done = await link.query("acts")
        assert (most <= http_limits.ACTS_AT_ONCE, done) == (True, 30)

    run_with_writer(temporal_dev_server, "link-thirty", scenario)


def test_an_act_beyond_the_queue_is_told_that_others_are_carried_out_and_those_are(
    temporal_dev_server: EmbeddedTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "ACTS_WAITING_MAX", 1)

    async def scenario(link: TemporalWriterLink) -> None:
        writer = await _held(temporal_dev_server, "link-queue")
        others = [asyncio.create_task(link.update("flush", FLUSH)) for _ in range(http_limits.ACTS_AT_ONCE + 1)]
        with pytest.raises(Problem) as full:
            await asyncio.gather(asyncio.sleep(0), link.update("flush", FLUSH))
        assert _kind(full.value) == (503, "writer-busy")
        assert "nothing was done" in str(full.value.content["detail"])
        await writer.signal("hold", False)
        assert set(await asyncio.gather(*others)) == {"flush: 3 waiting keys"}

    run_with_writer(temporal_dev_server, "link-queue", scenario)


def test_an_act_that_waited_too_long_for_others_is_told_so(
    temporal_dev_server: EmbeddedTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "ACTS_QUEUE_SECONDS_MAX", 0.05)

    async def scenario(link: TemporalWriterLink) -> None:
        writer = await _held(temporal_dev_server, "link-waits")
        others = [asyncio.create_task(link.update("flush", FLUSH)) for _ in range(http_limits.ACTS_AT_ONCE)]
        with pytest.raises(Problem) as waited:
            await asyncio.gather(asyncio.sleep(0), link.update("flush", FLUSH))
        assert _kind(waited.value) == (503, "writer-busy")
        await writer.signal("hold", False)
        assert set(await asyncio.gather(*others)) == {"flush: 3 waiting keys"}

    run_with_writer(temporal_dev_server, "link-waits", scenario)


def test_an_act_beyond_temporals_ten_in_flight_is_told_so_and_queries_are_answered(
    temporal_dev_server: EmbeddedTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "WRITER_UPDATE_SECONDS_MAX", 2.0)

    async def scenario(link: TemporalWriterLink) -> None:
        writer = await _held(temporal_dev_server, "link-ten")
        for _ in range(10):
            await writer.start_update("flush", FLUSH, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        with pytest.raises(Problem) as busy:
            await link.update("pause", FLUSH)
        assert _kind(busy.value) == (503, "writer-busy")
        assert "Temporal lets ten wait" in str(busy.value.content["detail"])
        assert (await link.query("acts"))[0] == 10
        await writer.signal("hold", False)

    run_with_writer(temporal_dev_server, "link-ten", scenario)


def test_an_act_that_no_worker_takes_is_not_told_to_wait_for_others(
    temporal_dev_server: EmbeddedTemporal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal remembers the workers of the last minutes."""
    monkeypatch.setattr(http_limits, "WRITER_UPDATE_SECONDS_MAX", 1.0)

    async def scenario(link: TemporalWriterLink) -> None:
        assert await link.query("acts") == [0, 0, 0]

    async def run() -> None:
        client = await Client.connect(temporal_dev_server.address)
        handle = await client.start_workflow(StandInWriter.run, id=workflow_id("link-left"), task_queue=TASK_QUEUE)

        async def connect() -> Client:
            return client

        with pytest.raises(Problem) as away:
            await TemporalWriterLink("link-left", connect).update("flush", FLUSH)
        assert _kind(away.value) in {(503, "writer-away"), (503, "no-worker")}
        await handle.terminate()

    run_with_writer(temporal_dev_server, "link-stays", scenario)
    asyncio.run(run())


def test_an_act_for_which_the_writer_has_no_room_is_to_be_repeated(temporal_dev_server: EmbeddedTemporal) -> None:
    async def scenario(link: TemporalWriterLink) -> None:
        with pytest.raises(Problem) as busy:
            await link.update("retry", FLUSH)
        assert _kind(busy.value) == (503, "writer-busy")
        assert "the first is 'flush' by ana" in str(busy.value.content["detail"])

    run_with_writer(temporal_dev_server, "link-no-room", scenario)


def test_a_writer_that_was_never_started_is_told_apart(temporal_dev_server: EmbeddedTemporal) -> None:
    async def run() -> None:
        async def connect() -> Client:
            return await Client.connect(temporal_dev_server.address)

        link = TemporalWriterLink("link-missing", connect)
        for _ in range(2):
            with pytest.raises(Problem) as missing:
                await link.query("status")
            assert str(missing.value.content["type"]).endswith("writer-missing")

    asyncio.run(run())


def test_a_run_that_has_ended_is_not_shown_as_if_it_lived(temporal_dev_server: EmbeddedTemporal) -> None:
    """Temporal answers queries of a closed run from its history."""

    async def scenario(link: TemporalWriterLink) -> None:
        assert await link.query("status") == {"paused_by": ""}
        client = await Client.connect(temporal_dev_server.address)
        await client.get_workflow_handle(workflow_id("link-closed")).terminate()
        with pytest.raises(Problem) as missing:
            await link.query("status")
        assert str(missing.value.content["type"]).endswith("writer-missing")

    run_with_writer(temporal_dev_server, "link-closed", scenario)


def test_a_run_that_a_person_paused_in_temporal_is_told_of_as_paused_there(
    temporal_dev_server: EmbeddedTemporal,
) -> None:
    async def connect() -> Client:
        return await Client.connect(temporal_dev_server.address)

    async def scenario(link: TemporalWriterLink) -> None:
        client = await connect()
        await client.workflow_service.pause_workflow_execution(
            PauseWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_id=workflow_id("link-paused"),
                identity="ana@desk",
                reason="a look",
            )
        )
        act = TemporalWriterLink("link-paused", connect).update("pause", OperatorAct(operator="ana"))
        for ask in (link.query("status"), link.query("status"), act):
            with pytest.raises(Problem) as paused:
                await ask
            assert str(paused.value.content["type"]).endswith("paused-in-temporal")
            assert "(ana@desk: a look)" in str(paused.value.content["detail"])

    run_with_writer(temporal_dev_server, "link-paused", scenario)


def test_a_run_whose_task_fails_is_named_with_its_error(temporal_dev_server: EmbeddedTemporal) -> None:
    async def run() -> None:
        async def connect() -> Client:
            return await Client.connect(temporal_dev_server.address)

        client = await connect()
        async with Worker(
            client, task_queue=TASK_QUEUE, workflows=[Another], workflow_runner=UnsandboxedWorkflowRunner()
        ):
            # The worker's code knows no such workflow: each of its tasks fails.
            handle = await client.start_workflow(WORKFLOW_TYPE, id=workflow_id("link-failing"), task_queue=TASK_QUEUE)
            link = TemporalWriterLink("link-failing", connect)
            with pytest.raises(Problem) as stuck:
                await link.query("status")
            assert str(stuck.value.content["type"]).endswith("writer-failing")
            assert "its workflow task fails" in str(stuck.value.content["detail"]).lower()
            await handle.terminate()

    asyncio.run(run())


def test_while_temporal_is_away_it_is_not_asked_again_each_time() -> None:
    attempts = 0
    now = 0.0

    async def connect() -> Client:
        nonlocal attempts
        attempts += 1
        raise RuntimeError("connection refused")

    async def run() -> None:
        nonlocal now
        link = TemporalWriterLink("away", connect, clock=lambda: now)
        for _ in range(5):
            with pytest.raises(Problem) as away:
                await link.query("status")
            assert away.value.status == 503
        assert attempts == 1
        now = 60.0
        with pytest.raises(Problem):
            await link.update("pause", OperatorAct(operator="anna"))
        assert attempts == 2

    asyncio.run(run())
