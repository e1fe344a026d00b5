"""Two releases of workers side by side: a run of the writer begins with the newest release that all workers at work
know.

Each worker reports which release it knows (`store/workers.py`) and reads what the others know. A run keeps the
release that it began with; if that is no longer the newest that all workers know, the run is asked to continue as a new
run. A worker that finds a run of a newer release than its own takes no tasks of the writers until that run has ended,
because it would only fail them. If no worker at work knows that release any more, the run is ended and a new one begun.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sqlalchemy.exc import DBAPIError
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import PatchActivationInput

from oldhost_sync.policy.machine.release import RELEASE, RELEASE_MIN, is_known_to, release_of_marks
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.workers import Known, WorkerPresence
from oldhost_sync.temporal.client import start_writer
from oldhost_sync.temporal.writer_health import RPC_TIMEOUT, describe_writer, is_running
from workflows.messages import WORKFLOW_ID_PREFIX, workflow_id

logger = logging.getLogger(__name__)

WORKERS_POLL_SECONDS = 2.0
# An older reading misses workers that have started since; then a run begins with the oldest release.
FRESH_SECONDS = 6.0
# After this time workers of newer releases have seen this worker: what they read before is too old for them to use, and
# a run that they began by it shows its marks (a task of the writer takes 0.2 s).
SEEN_SECONDS = FRESH_SECONDS + WORKERS_POLL_SECONDS
# How often the runs are checked while the workers do not change, in case something went wrong with a run.
RUNS_POLL_SECONDS = 60.0
# The pause before the same run is asked again to continue as a new one doubles up to this: Temporal takes 10,000
# signals in a run, and one whose tasks fail reads none.
RENEW_SECONDS_MAX = 600.0
# How long a worker waits for a run that Temporal does not show while it shows others. If that run keeps a newer
# release, its tasks fail in this worker until one that knows the release has asked for a new run.
RUN_UNREAD_SECONDS_MAX = 30.0
# Runs described at the same time: a hundred hosts take a second, and Temporal has other work.
RUNS_ASKED_AT_A_TIME = 5

# The search attribute in which Temporal lists the patches of a run.
MARKS = SearchAttributeKey.for_keyword_list("TemporalChangeVersion")


class RunStep(Enum):
    """What to do about one host's run."""

    NOTHING = "nothing"
    RENEW = "renew"
    WAIT = "wait"
    END = "end"


def step(run: int | None, known: Known, *, own: int) -> RunStep:
    """`run`: the release that the run keeps; None if no run has begun. `own`: the newest release this worker knows."""
    if run is None or run == known.smallest:
        return RunStep.NOTHING
    if run > own:
        return RunStep.WAIT if known.newest > own else RunStep.END
    return RunStep.RENEW


@dataclass(frozen=True, slots=True)
class _Asked:
    """A run that was asked to continue as a new one, and when it may be asked again."""

    run_id: str
    pause_seconds: float
    again_at: float


@dataclass(eq=False)
class ReleaseWatch:
    """The watch of one worker. `policy`: each host's, for a writer that replaces a run whose release no
    worker knows.
    """

    client: Client
    presence: WorkerPresence
    policy: Callable[[str], WriterPolicy]
    monotonic: Callable[[], float] = time.monotonic
    _known: dict[str, Known] = field(default_factory=dict)
    _looked_at: float = float("-inf")
    _runs_due_at: float = float("-inf")
    _seen_since: float = float("inf")
    _waits_for: dict[str, int] = field(default_factory=dict)
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _unread: dict[str, float] = field(default_factory=dict)  # since when Temporal has not shown the host's run
    _failure: str = ""
    _may_take: asyncio.Event = field(default_factory=asyncio.Event)

    # ------------------------------------------------------------------------------------------ what the Worker asks

    def activates(self, patch: PatchActivationInput) -> bool:
        """Whether a run that reaches this patch for the first time may use it: whether all workers at work know it."""
        host = patch.workflow_info.workflow_id.removeprefix(WORKFLOW_ID_PREFIX)
        return is_known_to(self.begins_with(host), patch.patch_id)

    def begins_with(self, host: str) -> int:
        """The release that a new run of the host's writer keeps."""
        known = self._known.get(host)
        if known is None or self.monotonic() > self._looked_at + FRESH_SECONDS:
            return RELEASE_MIN
        return max(min(known.smallest, RELEASE), RELEASE_MIN)

    async def may_take_tasks(self) -> None:
        """Returns when this worker can execute the writers' runs."""
        await self._may_take.wait()

    def troubles(self) -> dict[str, str]:
        """Why no tasks are taken yet, for the role's readiness."""
        if self._may_take.is_set():
            return {}
        newer = [f"{host} (release {release})" for host, release in sorted(self._waits_for.items())]
        unchecked = f"not checked yet{self._failure and ': '}{self._failure}"
        reason = f"newer than this worker's release {RELEASE}: {', '.join(newer)}" if newer else unchecked
        return {"release": f"the writers' runs are {reason}"}

    # -------------------------------------------------------------------------------------------------- looking

    async def watch(self) -> None:
        """Look repeatedly, until cancelled."""
        while True:
            try:
                await self.poll()
                self._failure = ""
            except (StoreError, DBAPIError, RPCError) as error:
                self._failed(f"{type(error).__name__}: {error}")
            await asyncio.sleep(WORKERS_POLL_SECONDS)

    def _failed(self, failure: str) -> None:
        """Without a look, a worker that has not begun stays away from all writers, which people must hear of."""
        again = failure == self._failure
        level = logging.DEBUG if again or self._may_take.is_set() else logging.WARNING
        logger.log(level, "can't check which releases the workers know and the writers' runs keep: %s", failure)
        self._failure = failure

    async def poll(self) -> None:
        """Look once. Raises the store's errors, and RPCError."""
        began = self.monotonic()
        before, found = self._known, await asyncio.to_thread(self.presence.known)
        lapsed = began > self._looked_at + FRESH_SECONDS
        self._known, self._looked_at = found, began
        if len(found) < len(set(self.presence.hosts)):
            self._seen_since = float("inf")
            await asyncio.to_thread(self.presence.report)
        elif lapsed or self._seen_since == float("inf"):
            self._seen_since = began
        if began >= self._runs_due_at or lapsed or found != before or not self._may_take.is_set():
            self._runs_due_at = began  # stays so if this look fails
            all_known = await self._look_at_runs()
            self._runs_due_at = began + (RUNS_POLL_SECONDS if all_known else FRESH_SECONDS)

    async def _look_at_runs(self) -> bool:
        """Whether each run has the release that it should have. A run that was asked to continue as a new one may be
        followed by another of the wrong release, begun by a worker that has not seen the change yet.
        """
        asking = asyncio.Semaphore(RUNS_ASKED_AT_A_TIME)

        async def look(host: str) -> RunStep:
            async with asking:
                return await self._look_at_run(host, self._known[host])

        steps = await asyncio.gather(*(look(host) for host in self._known), return_exceptions=True)
        unread: dict[str, RPCError] = {}
        for host, each in zip(self._known, steps, strict=True):
            if isinstance(each, RPCError):
                unread[host] = each
            elif isinstance(each, BaseException):
                raise each
        self._check_unread(unread)
        newer_at_work = any(known.newest > RELEASE for known in self._known.values())
        unseen = self.monotonic() < self._seen_since + (SEEN_SECONDS if newer_at_work else 0)
        if not self._waits_for and not unseen and not self._may_take.is_set():
            for host, error in unread.items():
                logger.warning("beginning without knowing which release the writer of %s keeps: %s", host, error)
            self._may_take.set()
        return all(each is RunStep.NOTHING for each in steps)

    def _check_unread(self, unread: Mapping[str, RPCError]) -> None:
        """Raises the error of a run that can't be looked at. Not if Temporal has shown the others' for long enough,
        but not this one: then the other hosts need this worker.
        """
        now = self.monotonic()
        shows_none = len(unread) == len(self._known)
        self._unread = {} if shows_none else {host: self._unread.get(host, now) for host in unread}
        for host, error in unread.items():
            if shows_none or now < self._unread[host] + RUN_UNREAD_SECONDS_MAX:
                raise error

    async def _look_at_run(self, host: str, known: Known) -> RunStep:
        described = await self._describe(host)
        run = None if described is None else run_release(described)
        todo = step(run, known, own=RELEASE)
        if todo is RunStep.WAIT and run is not None:
            if host not in self._waits_for:
                logger.warning(
                    "the writer of %s keeps release %d, but this worker knows only %d and waits for a new run",
                    host, run, RELEASE,
                )  # fmt: skip
            self._waits_for[host] = run
            return todo
        run_id = "" if described is None else described.workflow_execution_info.execution.run_id
        if todo is RunStep.RENEW:
            await self._renew(host, run_id, run, known.smallest)
        elif todo is RunStep.END:
            await self._end(host, run_id, run)
        self._waits_for.pop(host, None)
        return todo

    async def _describe(self, host: str) -> DescribeWorkflowExecutionResponse | None:
        """The host's run; None if none is running. A paused one has no tasks until a person unpauses it."""
        described = await describe_writer(self.client, host)
        return described if described is not None and is_running(described) else None

    async def _renew(self, host: str, run_id: str, run: int | None, release: int) -> None:
        """Ask for a new run. This worker knows the old one's release, too: so it goes on, whatever becomes of this."""
        now, last = self.monotonic(), self._asked.get(host)
        if last is None or last.run_id != run_id:
            pause = FRESH_SECONDS
        elif now < last.again_at:
            return
        else:
            pause = min(2 * last.pause_seconds, RENEW_SECONDS_MAX)
        self._asked[host] = _Asked(run_id, pause, now + pause)
        logger.info("the writer of %s keeps release %s; a new run begins with %d", host, run, release)
        try:
            await self.client.get_workflow_handle(workflow_id(host), run_id=run_id).signal(
                "renew", release, rpc_timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return  # it has ended
            logger.warning(
                "the writer of %s goes on with release %s, it can't be asked for a new run: %s", host, run, error
            )

    async def _end(self, host: str, run_id: str, run: int | None) -> None:
        why = f"no worker at work knows release {run}, which this run keeps; the next one begins with {RELEASE}"
        logger.warning("terminating the run of %s: %s", host, why)
        try:
            await self.client.get_workflow_handle(workflow_id(host), run_id=run_id).terminate(
                reason=why, rpc_timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # otherwise another worker was faster
                raise
        await start_writer(self.client, host, self.policy(host))


def run_release(described: DescribeWorkflowExecutionResponse) -> int | None:
    """The release that a run keeps; None until its first task is done."""
    attributes = decode_typed_search_attributes(described.workflow_execution_info.search_attributes)
    marks: Collection[str] = attributes.get(MARKS, ())
    return release_of_marks(marks)
