"""The common part of all writes: record in one transaction, and answer with what was accepted.

The answers are built by hand for speed: 300 writes a second take this path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from starlette.responses import Response

from oldhost_sync.api.database import Database
from oldhost_sync.api.group_commit import GroupCommit
from oldhost_sync.api.keys import RequestKey
from oldhost_sync.api.problems import commit_uncertain
from oldhost_sync.api.request_spans import note
from oldhost_sync.store.errors import CommitUncertain
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.validation import Acceptable

T = TypeVar("T")


async def record(database: Database, fn: Callable[[Connection], T], key: RequestKey, *entity: str) -> T:
    """Run `fn`, which records changes of `entity`; if its commit is uncertain, the problem names the key."""
    try:
        return await database.run_for_entity(fn, *entity)
    except CommitUncertain:
        raise commit_uncertain(key.text) from None


async def recorded_answer(commits: GroupCommit, change: Acceptable, key: RequestKey) -> Response:
    """Record `change` and answer."""
    try:
        recorded = await commits.record(replace(change, key_is_new=key.is_new))
    except CommitUncertain:
        raise commit_uncertain(key.text) from None
    return accepted_answer(recorded)


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
