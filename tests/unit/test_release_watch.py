"""What a worker does about a run, by what the workers at work know."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.worker import PatchActivationInput

from oldhost_sync.policy.release import BESIDE_MIN, RELEASE
from oldhost_sync.policy.writer_policy import WriterPolicy
from oldhost_sync.release_watch import FRESH_SECONDS, ReleaseWatch, Step, step
from oldhost_sync.store.worker_presence import Known
from workflows.messages import workflow_id

OLD, NEW = 7, 8


@pytest.mark.parametrize(
    ("run", "known", "own", "expected"),
    [
        (OLD, Known(OLD, OLD), OLD, Step.NOTHING),
        (OLD, Known(OLD, NEW), NEW, Step.NOTHING),
        (OLD, Known(NEW, NEW), NEW, Step.RENEW),
        (NEW, Known(OLD, NEW), NEW, Step.RENEW),
        (NEW, Known(OLD, NEW), OLD, Step.WAIT),
        (NEW, Known(OLD, OLD), OLD, Step.END),
        (NEW, Known(OLD, OLD), NEW, Step.RENEW),
        (None, Known(OLD, NEW), OLD, Step.NOTHING),
        (OLD - 1, Known(OLD, OLD, all_tell=False), OLD, Step.NOTHING),
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
        "a worker that does not know this signal",
    ],
)  # fmt: skip
def test_the_step_follows_from_the_run_and_what_is_known(
    run: int | None, known: Known, own: int, expected: Step
) -> None:
    assert step(run, known, own=own) is expected


class Patch:
    def __init__(self, patch_id: str) -> None:
        self.patch_id = patch_id
        self.workflow_info = type("Info", (), {"workflow_id": workflow_id("oldhost")})


def patch(patch_id: str) -> PatchActivationInput:
    return cast("PatchActivationInput", Patch(patch_id))


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def watch(clock: list[float]) -> ReleaseWatch:
    nothing = cast("Any", None)
    return ReleaseWatch(nothing, nothing, WriterPolicy(), monotonic=lambda: clock[0])


def test_before_anything_is_known_a_run_begins_with_the_oldest_release(watch: ReleaseWatch) -> None:
    assert watch.begins_with("oldhost") == BESIDE_MIN
    assert not watch.activates(patch(f"release-{BESIDE_MIN + 1}"))
    assert watch.activates(patch(f"release-{BESIDE_MIN}"))


def test_a_run_begins_with_the_smallest_release_known_and_never_with_one_that_this_code_lacks(
    watch: ReleaseWatch, clock: list[float]
) -> None:
    watch._known, watch._looked_at = {"oldhost": Known(RELEASE + 1, RELEASE + 1)}, clock[0]
    assert watch.begins_with("oldhost") == RELEASE
    watch._known = {"oldhost": Known(3, RELEASE)}
    assert watch.begins_with("oldhost") == 3


def test_what_was_read_long_ago_is_not_believed(watch: ReleaseWatch, clock: list[float]) -> None:
    watch._known, watch._looked_at = {"oldhost": Known(BESIDE_MIN - 1, RELEASE)}, clock[0]
    clock[0] += FRESH_SECONDS - 0.1
    assert watch.begins_with("oldhost") == BESIDE_MIN - 1
    clock[0] += 0.2
    assert watch.begins_with("oldhost") == BESIDE_MIN
