"""Reception: changes on their way in, from the signal that brought them to the outbox or the machine.

An application's own signal: Temporal acknowledges it before the workflow has read it. So its idempotency key is derived
from its position: the run it was sent to (before any reset), and its place among that run's submissions. A later run
that reads this run's history derives the same key, so a signal that this run leaves unread, however it ends, is
recorded exactly once (invariant I13).

While no worker runs, up to 10,000 signals queue up at Temporal, the relay's too, which delivers all of them in one task
when a worker starts: seconds of work, which Temporal takes for a deadlock. It would retry the task for ever, with the
same result. So handlers only store what came, and each pass takes a limited part of it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine.machine import Machine
    from workflows import calls, intake, messages
    from workflows.clock import now_ms
    from workflows.intake import signal_key
    from workflows.messages import Submission

# Signals of earlier runs are recorded before newer ones, so that the newest state wins; after this long the newer ones
# no longer wait.
AWAIT_OLDER_MS_MAX = 120_000
# Limits of what is decoded at a pass, some 20 ms each: the count for small signals, the size for large ones.
READ_AT_ONCE_MAX = 500
READ_BYTES_MAX = 1024 * 1024
# Batches of the relay taken at a pass, of 500 refs each: some 6 ms.
BATCHES_AT_ONCE_MAX = 6
# Of the inbox: how many submissions one activity records.
PER_ACTIVITY_MAX = 50
# An activity's input copies the payloads into history: a batch of this size is recorded within milliseconds, and little
# is left when a run ends.
BATCH_BYTES_MAX = 128 * 1024
# Temporal refuses an input above 2 MiB, of an activity or of a new run, and the workflow is stuck for ever; half of it
# is for the snapshot.
BYTES_MAX = 512 * 1024
# A row lock is usually released within a second; each attempt copies the payload into history again.
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000


async def record_submissions(request: messages.Submissions, within: timedelta | None = None) -> list[messages.Recorded]:
    """One answer per item. `within`: raise NoResult after this time, even if a retry would follow; None: retry until it
    succeeds.
    """
    answers: list[messages.Recorded] = await calls.result_of(request, within=within)
    if len(answers) != len(request.items):
        raise calls.NoResult(f"{len(answers)} answers for {len(request.items)} submissions")
    return answers


class Reception:
    """Changes that applications signal to the workflow itself, until they are recorded.

    `recovering`: signals of earlier runs are still being read from their histories, and recorded before newer ones.

    `was_reset`: an operator reset this run; the next run finds out which of the signals delivered again are recorded.
    """

    def __init__(self, machine: Machine, wake: Callable[[], None], given: messages.WriterInput) -> None:
        self._machine = machine
        self._wake = wake
        info = workflow.info()
        self._run_id, self._original_run_id = info.run_id, info.original_execution_run_id
        self._continued_run_id = info.continued_run_id or ""
        self.inbox = Inbox(given.submissions)
        self.recovering = given.unrecorded or not self._continued_run_id
        self.inbox.awaits_older = self.recovering
        self._awaits_until_ms = now_ms() + AWAIT_OLDER_MS_MAX
        self.was_reset = False
        self.signals = 0
        self._submitted = 0
        self._unread: deque[tuple[int, RawValue]] = deque()

    def take(self, raw: RawValue) -> None:
        """Store one `submit_change`; `read` decodes it."""
        self._submitted += 1
        self._unread.append((self._submitted, raw))

    def read(self) -> None:
        """Decode some of the stored signals, in order."""
        size = 0
        for _ in range(min(READ_AT_ONCE_MAX, len(self._unread))):
            if size >= READ_BYTES_MAX:
                break
            place, raw = self._unread.popleft()
            size += len(raw.payload.data)
            key = signal_key(self._original_run_id, place, raw.payload.data)
            self.inbox.add(Submission(intake.read_change(raw), key))

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def next_batch(self) -> list[Submission]:
        if self.inbox.awaits_older and now_ms() >= self._awaits_until_ms:
            self.inbox.awaits_older = False
        return self.inbox.next_batch(draining=self._machine.draining, now_ms=now_ms())

    def wake_at_ms(self) -> int | None:
        """When there may be something to record even if no event arrives."""
        if self.inbox.awaits_older:
            return self._awaits_until_ms if len(self.inbox) else None
        return self.inbox.retry_at_ms()

    async def record(self, batch: list[Submission]) -> None:
        """Record one batch, and give the recorded changes to the machine."""
        try:
            answers = await record_submissions(
                messages.Submissions(batch, may_leave=True, original_run_id=self._original_run_id)
            )
        except BaseException:
            self.inbox.failed()
            raise
        self.inbox.recorded([place for place, answer in enumerate(answers) if answer.left], now_ms())
        self.was_reset = self.was_reset or any(answer.after_reset for answer in answers)
        for answer in answers:
            self.hand_over(answer)

    def hand_over(self, recorded: messages.Recorded) -> None:
        if recorded.ref is not None and not recorded.processed and not recorded.by_relay:
            self._machine.enqueue(recorded.changes(), now_ms())

    async def recover(self) -> None:
        """Record the signals that earlier runs left unread, from their histories; the relay brings those changes."""
        request = messages.Recovery(self._run_id, self._original_run_id, self._continued_run_id, now_ms())
        try:
            while not await self._has_recovered(request):
                await workflow.sleep(calls.AGAIN_SECONDS, summary="until unread signals are looked for again")
        finally:
            self.inbox.awaits_older = False
            self._wake()
        self.recovering = False

    async def _has_recovered(self, request: messages.Recovery) -> bool:
        try:
            await calls.result_of(request)
        except calls.NoResult:
            workflow.logger.warning("the search for unread signals of earlier runs failed")
            return False
        return True

    @property
    def follows_a_reset(self) -> bool:
        """Use only at the end of the run: the events before the reset must replay as they did without it."""
        return self._run_id != self._original_run_id

    def successor(self) -> tuple[list[Submission], bool]:
        """The submissions for the next run, and whether it must read earlier runs' histories."""
        carried = self.inbox.carried()
        if self.recovering or self.follows_a_reset or self.has_unread or carried is None:
            return [], True
        return carried, False


@dataclass
class Item:
    """`entity` None: the change names none, so it waits for no other change."""

    submission: Submission
    size: int
    entity: tuple[str, str] | None


@dataclass
class Block:
    """An entity whose changes could not be recorded: not tried again before `until_ms`; the next pause is doubled."""

    until_ms: int
    pause_ms: int


class Inbox:
    """Changes that arrived by signal, in order, until an activity has recorded them in the outbox.

    Nothing else in the writer's memory has payloads (invariant I9), so they are recorded at once. Those not yet
    recorded when a new run begins are passed to it if they are small; otherwise the next run reads them from this run's
    history. A change whose entity's row is locked waits again, with the later changes of its entity; all others are
    recorded.

    `recording`: an activity is recording a batch; the next batch waits for it, to keep the order.

    `awaits_older`: nothing is recorded yet, because older signals are still read from an earlier run's history.
    """

    def __init__(self, carried: Iterable[Submission]) -> None:
        self._waiting: list[Item] = []
        self._under_way: list[Item] = []
        self._blocked: dict[tuple[str, str], Block] = {}
        self._bytes = 0
        self.awaits_older = False
        for submission in carried:
            self.add(submission)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def recording(self) -> bool:
        return bool(self._under_way)

    def add(self, submission: Submission) -> None:
        item = Item(submission, len(json.dumps(submission.change)), _entity_of(submission.change))
        self._waiting.append(item)
        self._bytes += item.size

    def next_batch(self, *, draining: bool, now_ms: int = 0) -> list[Submission]:
        """The changes to record now; none while the run is ending."""
        if self.recording or self.awaits_older or not self._waiting or draining:
            return []
        self._under_way = self._take(now_ms)
        return [item.submission for item in self._under_way]

    def recorded(self, left: Iterable[int], now_ms: int) -> None:
        """The batch has ended; `left`: the positions in it of changes that were not recorded."""
        back = [self._under_way[place] for place in left]
        self._unblock({item.entity for item in self._under_way if item.entity} - {item.entity for item in back})
        for item in back:
            self._block(item, now_ms)
        self._bytes -= sum(item.size for item in self._under_way)
        self._bytes += sum(item.size for item in back)
        self._under_way, self._waiting = [], back + self._waiting

    def failed(self) -> None:
        """The activity failed: the whole batch waits again."""
        self._under_way, self._waiting = [], self._under_way + self._waiting

    def retry_at_ms(self) -> int | None:
        """When to try blocked changes again; None: there are none."""
        return min((block.until_ms for block in self._blocked.values()), default=None) if self._waiting else None

    def carried(self) -> list[Submission] | None:
        """The changes to pass to the next run; None when they are too large and stay in this run's history."""
        if self._bytes > BYTES_MAX:
            return None
        return [item.submission for item in [*self._under_way, *self._waiting]]

    def _take(self, now_ms: int) -> list[Item]:
        """The next items in order, without those of a blocked entity."""
        taken: list[Item] = []
        rest: list[Item] = []
        left = BATCH_BYTES_MAX
        for place, item in enumerate(self._waiting):
            if self._is_blocked(item, now_ms):
                rest.append(item)
                continue
            if len(taken) == PER_ACTIVITY_MAX or (taken and left < item.size):
                rest += self._waiting[place:]
                break
            left -= item.size
            taken.append(item)
        self._waiting = rest
        return taken

    def _is_blocked(self, item: Item, now_ms: int) -> bool:
        block = self._blocked.get(item.entity) if item.entity else None
        return block is not None and block.until_ms > now_ms

    def _block(self, item: Item, now_ms: int) -> None:
        if item.entity is None:
            return
        block = self._blocked.get(item.entity)
        if block is not None and block.until_ms > now_ms:
            return
        pause_ms = min(2 * block.pause_ms, RETRY_MS_MAX) if block else RETRY_MS_MIN
        self._blocked[item.entity] = Block(now_ms + pause_ms, pause_ms)

    def _unblock(self, entities: Iterable[tuple[str, str]]) -> None:
        for entity in sorted(entities):
            self._blocked.pop(entity, None)


def _entity_of(change: object) -> tuple[str, str] | None:
    if not isinstance(change, dict):
        return None
    names = (change.get("entity_type"), change.get("entity_id"))
    return names if all(isinstance(name, str) for name in names) else None  # type: ignore[return-value]


class Relayed:
    """Batches of refs that the relay has signalled; the machine takes a few at each pass. `waiting`: those that it has
    not taken yet, in order of arrival.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.waiting: deque[RawValue] = deque()
        self._nudged = False

    def add(self, batch: RawValue) -> None:
        self.waiting.append(batch)

    def take(self, now_ms: int) -> int:
        """Give some to the machine; returns the number of items that can't be read."""
        unreadable = 0
        for _ in range(min(BATCHES_AT_ONCE_MAX, len(self.waiting))):
            refs, withdrawn, unknown = intake.read_batch(self.waiting.popleft())
            self._machine.outcomes.withdraw(withdrawn, now_ms)
            self._machine.enqueue(refs, now_ms)
            unreadable += unknown
            self._nudged = self._nudged or not (refs or withdrawn or unknown)
        return unreadable

    def take_nudge(self) -> bool:
        """Whether an empty batch has come since the last call: changes have waited all the time for minutes."""
        nudged, self._nudged = self._nudged, False
        return nudged
