"""Reception: changes that applications send to the workflow itself, until they are recorded in the outbox.

Temporal acknowledges a signal before the workflow has read it. So its idempotency key is derived from its position: the
run it was sent to (before any reset), and its place among that run's submissions. A later run that reads this run's
history derives the same key, so a signal that this run leaves unread, however it ends, is recorded exactly once
(invariant I13).

While no worker runs, up to 10,000 signals queue up at Temporal, which delivers all of them in one task. Their handlers
only store them; a limited number is decoded at each pass, so that the task ends long before Temporal takes it for a
deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import Machine
    from workflows import calls, intake, messages
    from workflows.clock import now_ms
    from workflows.inbox import Inbox
    from workflows.messages import Submission
    from workflows.submission_keys import signal_key

# Signals of earlier runs are recorded before newer ones, so that the newest state wins; after this long the newer ones
# no longer wait.
AWAIT_OLDER_MS_MAX = 120_000
# Limits of what is decoded at a pass, some 20 ms each: the count for small signals, the size for large ones.
READ_AT_ONCE_MAX = 500
READ_BYTES_MAX = 1024 * 1024


class Reception:
    """`recovering`: signals of earlier runs are still being read from their histories, and recorded before newer ones.

    `was_reset`: an operator reset this run; the next run finds out which of the signals delivered again are recorded.
    """

    def __init__(self, host: str, machine: Machine, wake: Callable[[], None], given: messages.WriterInput) -> None:
        self._host = host
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
            request = messages.Submissions(self._host, batch, may_leave=True, original_run_id=self._original_run_id)
            answers = await calls.record_submissions(request)
        except BaseException:
            self.inbox.failed()
            raise
        self.inbox.recorded([place for place, one in enumerate(answers) if one.left], now_ms())
        self.was_reset = self.was_reset or any(one.after_reset for one in answers)
        for recorded in answers:
            self.hand_over(recorded)

    def hand_over(self, recorded: messages.Recorded) -> None:
        if recorded.ref is not None and not recorded.processed and not recorded.by_relay:
            self._machine.enqueue(recorded.changes(), now_ms())

    async def recover(self) -> None:
        """Record the signals that earlier runs left unread, from their histories; the relay brings those changes."""
        request = messages.Recovery(self._host, self._run_id, self._original_run_id, self._continued_run_id, now_ms())
        try:
            while not await self._has_recovered(request):
                await workflow.sleep(calls.AGAIN_SECONDS, summary="until unread signals are looked for again")
        finally:
            self.inbox.awaits_older = False
            self._wake()
        self.recovering = False

    async def _has_recovered(self, request: messages.Recovery) -> bool:
        try:
            await calls.recover_submissions(request)
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
