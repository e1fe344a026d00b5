"""The common part of all writes: record in one transaction, and answer with what was accepted.

The answers are built by hand for speed: 300 writes a second take this path.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from starlette.responses import Response

from oldhost_sync.api.group_commit import GroupCommit
from oldhost_sync.api.keys import RequestKey
from oldhost_sync.api.problems import commit_uncertain
from oldhost_sync.api.request_spans import note
from oldhost_sync.store.errors import CommitUncertain
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.validation import Acceptable

T = TypeVar("T")


async def recorded(recording: Awaitable[T], key: RequestKey) -> T:
    """Await it; if its commit is uncertain, the problem names the key to ask with."""
    try:
        return await recording
    except CommitUncertain:
        raise commit_uncertain(key.text) from None


async def recorded_answer(commits: GroupCommit, change: Acceptable, key: RequestKey) -> Response:
    """Record `change` and answer."""
    return accepted_answer(await recorded(commits.record(replace(change, key_is_new=key.is_new)), key))


def accepted_answer(change: RecordedChange, changes: Sequence[RecordedChange] = ()) -> Response:
    """202. The first request and every repetition get the same bytes, whatever happened to the change in between."""
    content = accepted_fields(change)
    if changes:
        content["changes"] = [accepted_fields(each) for each in changes]
    headers = {"Idempotency-Replayed": "true"} if change.duplicate else None
    return Response(json.dumps(content, separators=(",", ":")), 202, headers, "application/json")


def accepted_fields(change: RecordedChange) -> dict[str, Any]:
    note(change)
    scheduled = change.scheduled_id is not None
    return {
        "sync_status": change.sync_status,
        # A scheduled change gets its id later, so the first answer had none.
        "change_id": None if scheduled else change.change_id,
        "idempotency_key": change.idempotency_key,
    }
