"""What a worker does about a run, by what the workers at work know."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import encode_search_attributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import PatchActivationInput

from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.workers import Known
from oldhost_sync.worker import release_watch
from oldhost_sync.worker.release_watch import (
    FRESH_SECONDS,
    MARKS,
    RUN_UNREAD_SECONDS_MAX,
    SEEN_SECONDS,
    ReleaseWatch,
    RunStep,
    step,
)
from workflows.messages import workflow_id

# This code as the second release: the first one's workers and runs may be beside it.
OLD = RELEASE_MIN = 1
NEW = RELEASE = 2


@pytest.fixture(autouse=True)
def a_second_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_watch, "RELEASE", RELEASE)
    monkeypatch.setattr(release_watch, "RELEASE_MIN", RELEASE_MIN)


@pytest.mark.parametrize(
    ("run", "known", "own", "expected"),
    [
        (OLD, Known(OLD, OLD), OLD, RunStep.NOTHING),
        (OLD, Known(OLD, NEW), NEW, RunStep.NOTHING),
        (OLD, Known(NEW, NEW), NEW, RunStep.RENEW),
        (NEW, Known(OLD, NEW), NEW, RunStep.RENEW),
        (NEW, Known(OLD, NEW), OLD, RunStep.WAIT),
        (NEW, Known(OLD, OLD), OLD, RunStep.END),
        (NEW, Known(OLD, OLD), NEW, RunStep.RENEW),
        (None, Known(OLD, NEW), OLD, RunStep.NOTHING),
    ],
    ids=[
        "all know what it keeps",
        "an old worker is still at work",
        "the last old worker has left",
        "an old worker came back",
        "the old worker that came back",
        "nobody knows it any more",
        "new workers that are to begin no new release",
        "none has begun",
    ],
)  # fmt: skip
def test_the_step_follows_from_the_run_and_what_is_known(
    run: int | None, known: Known, own: int, expected: RunStep
) -> None:
    assert step(run, known, own=own) is expected


class Presence:
    def __init__(self, known: Known, hosts: tuple[str, ...] = ("oldhost",)) -> None:
        self.now, self.hosts = known, hosts

    def known(self) -> dict[str, Known]:
        return dict.fromkeys(self.hosts, self.now)


class Temporal:
    """A client whose runs keep `release`; what is done to them is kept. `hidden`: a workflow that it can't show."""

    namespace = "default"

    def __init__(self, release: int) -> None:
        self.release = release
        self.done: list[Any] = []
        self.takes_no_signal = self.is_away = False
        self.hidden = ""
        self.status, self.run_id = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING, "the run"

    @property
    def workflow_service(self) -> Temporal:
        return self

    async def describe_workflow_execution(
        self, request: DescribeWorkflowExecutionRequest, **_: Any
    ) -> DescribeWorkflowExecutionResponse:
        if self.is_away or request.execution.workflow_id == self.hidden:
            raise RPCError("no server", RPCStatusCode.UNAVAILABLE, b"")
        info = WorkflowExecutionInfo(status=self.status, execution=WorkflowExecution(run_id=self.run_id))
        marks = TypedSearchAttributes([SearchAttributePair(MARKS, [f"release-{self.release}"])])
        encode_search_attributes(marks, info.search_attributes)
        return DescribeWorkflowExecutionResponse(workflow_execution_info=info)

    def get_workflow_handle(self, _: str, *, run_id: str | None = None) -> Temporal:
        assert run_id in {None, self.run_id}
        return self

    async def signal(self, name: str, release: int, **_: Any) -> None:
        self.done.append((name, release))
        if self.takes_no_signal:
            raise RPCError("exceeded workflow execution limit for signal events", RPCStatusCode.INVALID_ARGUMENT, b"")

    async def terminate(self, **_: Any) -> None:
        self.done.append("terminated")

    async def start_workflow(self, *_: Any, **__: Any) -> None:
        self.done.append("begun")
        self.release = RELEASE


class Patch:
    def __init__(self, patch_id: str) -> None:
        self.patch_id = patch_id
        self.workflow_info = type("Info", (), {"workflow_id": workflow_id("oldhost")})


def patch(patch_id: str) -> PatchActivationInput:
    return cast("PatchActivationInput", Patch(patch_id))


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


def watching(temporal: Temporal, presence: Presence, clock: list[float]) -> ReleaseWatch:
    return ReleaseWatch(
        cast("Any", temporal), cast("Any", presence), lambda _: WriterPolicy(), monotonic=lambda: clock[0]
    )


@pytest.fixture
def watch(clock: list[float]) -> ReleaseWatch:
    nothing = cast("Any", None)
    return ReleaseWatch(nothing, nothing, lambda _: WriterPolicy(), monotonic=lambda: clock[0])


def test_before_anything_is_known_a_run_begins_with_the_oldest_release(watch: ReleaseWatch) -> None:
    assert watch.begins_with("oldhost") == RELEASE_MIN
    assert not watch.activates(patch(f"release-{RELEASE_MIN + 1}"))
    assert watch.activates(patch(f"release-{RELEASE_MIN}"))


def test_a_run_begins_with_the_smallest_release_known_and_never_with_one_that_this_code_lacks(
    watch: ReleaseWatch, clock: list[float]
) -> None:
    watch._known, watch._looked_at = {"oldhost": Known(RELEASE + 1, RELEASE + 1)}, clock[0]
    assert watch.begins_with("oldhost") == RELEASE
    watch._known = {"oldhost": Known(OLD, NEW)}
    assert watch.begins_with("oldhost") == OLD


def test_a_worker_too_old_to_run_beside_these_does_not_leave_a_run_without_a_release(
    watch: ReleaseWatch, clock: list[float]
) -> None:
    watch._known, watch._looked_at = {"oldhost": Known(RELEASE_MIN - 1, RELEASE)}, clock[0]
    assert watch.activates(patch(f"release-{RELEASE_MIN}"))


def test_what_was_read_long_ago_is_not_believed(watch: ReleaseWatch, clock: list[float]) -> None:
    watch._known, watch._looked_at = {"oldhost": Known(RELEASE, RELEASE)}, clock[0]
    clock[0] += FRESH_SECONDS - 0.1
    assert watch.begins_with("oldhost") == RELEASE
    clock[0] += 0.2
    assert watch.begins_with("oldhost") == RELEASE_MIN


def may_take(watch: ReleaseWatch) -> bool:
    asyncio.run(watch.poll())
    return not watch.troubles()


def test_beside_its_like_a_worker_takes_tasks_at_once(clock: list[float]) -> None:
    assert may_take(watching(Temporal(RELEASE), Presence(Known(RELEASE, RELEASE)), clock))


def test_an_older_worker_waits_for_a_run_that_it_knows_and_until_the_newer_ones_have_seen_it(
    clock: list[float],
) -> None:
    temporal = Temporal(RELEASE + 1)
    watch = watching(temporal, Presence(Known(RELEASE, RELEASE + 1)), clock)
    assert not may_take(watch)
    assert f"release {RELEASE + 1}" in watch.troubles()["release"]
    temporal.release = RELEASE
    clock[0] += SEEN_SECONDS - 3
    assert not may_take(watch)
    clock[0] += 3
    asyncio.run(watch.poll())
    assert may_take(watch)
    assert temporal.done == []


def test_a_run_that_a_person_paused_in_temporal_holds_no_worker_up_and_is_left_alone(clock: list[float]) -> None:
    temporal = Temporal(RELEASE + 1)
    temporal.status = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
    assert may_take(watching(temporal, Presence(Known(RELEASE, RELEASE)), clock))
    assert temporal.done == []


def test_a_run_that_nobody_left_knows_is_ended_and_a_new_one_begun(clock: list[float]) -> None:
    temporal, presence = Temporal(RELEASE + 1), Presence(Known(RELEASE, RELEASE + 1))
    watch = watching(temporal, presence, clock)
    assert not may_take(watch)
    presence.now = Known(RELEASE, RELEASE)
    assert may_take(watch)
    assert temporal.done == ["terminated", "begun"]


def test_a_run_is_asked_again_until_it_keeps_what_all_know(clock: list[float]) -> None:
    temporal = Temporal(RELEASE)
    watch = watching(temporal, Presence(Known(RELEASE - 1, RELEASE)), clock)
    asyncio.run(watch.poll())
    asyncio.run(watch.poll())
    assert temporal.done == [("renew", RELEASE - 1)]
    clock[0] += FRESH_SECONDS
    asyncio.run(watch.poll())
    assert temporal.done == 2 * [("renew", RELEASE - 1)]
    temporal.release = RELEASE - 1
    clock[0] += FRESH_SECONDS
    asyncio.run(watch.poll())
    clock[0] += FRESH_SECONDS
    asyncio.run(watch.poll())
    assert len(temporal.done) == 2


def test_a_run_that_goes_on_as_it_is_is_asked_more_and_more_rarely_and_a_new_one_at_once(clock: list[float]) -> None:
    temporal = Temporal(RELEASE - 1)
    watch = watching(temporal, Presence(Known(RELEASE, RELEASE)), clock)
    for _ in range(3600 // 6):
        asyncio.run(watch.poll())
        clock[0] += FRESH_SECONDS
    asked = len(temporal.done)
    assert 6 < asked < 15
    temporal.run_id = "the next run"
    asyncio.run(watch.poll())
    assert len(temporal.done) == asked + 1


def test_a_run_that_takes_no_more_signals_keeps_no_worker_from_its_work(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    temporal = Temporal(RELEASE - 1)
    temporal.takes_no_signal = True
    assert may_take(watching(temporal, Presence(Known(RELEASE, RELEASE)), clock))
    assert "can't be asked for a new run: exceeded workflow execution limit" in caplog.text


def test_a_run_that_temporal_does_not_show_keeps_a_worker_from_the_others_for_a_while_only(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    temporal, presence = Temporal(RELEASE), Presence(Known(RELEASE, RELEASE), ("oldhost", "north"))
    temporal.hidden = workflow_id("north")
    watch = watching(temporal, presence, clock)
    with pytest.raises(RPCError):
        asyncio.run(watch.poll())
    clock[0] += RUN_UNREAD_SECONDS_MAX
    assert may_take(watch)
    assert "beginning without knowing which release the writer of north keeps: no server" in caplog.text


def test_a_run_is_waited_for_from_when_temporal_shows_the_others_again(clock: list[float]) -> None:
    temporal = Temporal(RELEASE)
    temporal.is_away = True
    watch = watching(temporal, Presence(Known(RELEASE, RELEASE), ("oldhost", "north")), clock)
    with pytest.raises(RPCError):
        asyncio.run(watch.poll())
    clock[0] += RUN_UNREAD_SECONDS_MAX
    temporal.is_away, temporal.hidden = False, workflow_id("north")
    with pytest.raises(RPCError):
        asyncio.run(watch.poll())


def test_a_temporal_that_shows_no_run_at_all_keeps_a_worker_waiting(clock: list[float]) -> None:
    temporal = Temporal(RELEASE)
    temporal.is_away = True
    watch = watching(temporal, Presence(Known(RELEASE, RELEASE), ("oldhost", "north")), clock)
    for _ in range(2):
        with pytest.raises(RPCError):
            asyncio.run(watch.poll())
        clock[0] += RUN_UNREAD_SECONDS_MAX
    assert watch.troubles() != {}


def test_a_worker_that_can_not_begin_says_why(
    clock: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = Temporal(RELEASE)
    temporal.is_away = True
    watch = watching(temporal, Presence(Known(RELEASE, RELEASE)), clock)
    looks = 0

    async def after_a_while(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", after_a_while)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch.watch())
    assert watch.troubles() == {"release": "the writers' runs are not checked yet: RPCError: no server"}
    assert [each.levelname for each in caplog.records].count("WARNING") == 1
