"""That no worker is at work: which was there last, how it ended, and what to do. From the workers' own reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from oldhost_sync.policy.plain_text import instant
from oldhost_sync.store.views.processes import Process


@dataclass(frozen=True, slots=True)
class WorkerSilence:
    """Sentences. `since`: the last report of the last worker."""

    why: str
    step: str
    since: datetime


def worker_silence(workers: Sequence[Process]) -> WorkerSilence | None:
    """None while a worker is at work, and if none has ever reported."""
    if not workers or any(each.at_work for each in workers):
        return None
    last = max(workers, key=lambda each: each.seen_at)
    if last.has_left:
        why = f"No worker is at work: {last.name} left at {instant(last.seen_at)}."
        return WorkerSilence(why, "Start a worker: `oldhost-sync worker`.", last.seen_at)
    why = (
        f"Worker {last.name} is silent since {instant(last.seen_at)}, and no other is at work: "
        "it was killed, is frozen, or can't reach the database."
    )
    return WorkerSilence(why, f"Restart worker {last.name}; kill it first if it still runs.", last.seen_at)
