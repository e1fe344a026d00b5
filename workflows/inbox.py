"""The inbox: changes that came by signal, in their order, until an activity has recorded them in the outbox.

They are the one thing with payloads that the writer holds (invariant I9): they are recorded at once, and what has not been
when a new run begins is carried there, within the size that Temporal takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from workflows.messages import Submission

PER_ACTIVITY_MAX = 50
# Temporal refuses inputs above 2 MiB, of an activity and of a new run, and stops at them for ever; half is the snapshot's.
BYTES_MAX = 512 * 1024


class Inbox:
    """`recording`: an activity is at it; the next batch waits for its end, so that the order holds."""

    def __init__(self, carried: Iterable[Submission]) -> None:
        self._waiting: list[tuple[Submission, int]] = []
        self.recording = False
        for submission in carried:
            self.add(submission)

    def add(self, submission: Submission) -> None:
        self._waiting.append((submission, len(json.dumps(submission.change))))

    def next_batch(self, *, draining: bool) -> list[Submission]:
        """What to record now. Before a new run nothing that it can be given, so that the run may end."""
        if self.recording or (draining and self._bytes <= BYTES_MAX):
            return []
        batch: list[Submission] = []
        left = BYTES_MAX
        for submission, size in self._waiting[:PER_ACTIVITY_MAX]:
            left -= size
            if batch and left < 0:
                break
            batch.append(submission)
        del self._waiting[: len(batch)]
        self.recording = bool(batch)
        return batch

    def carried(self) -> list[Submission]:
        """What the next run is given."""
        return [submission for submission, _ in self._waiting]

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._waiting)
