"""The write path: single changes share a commit, and every write is answered with 202 and what was accepted.

Transactions run one after the other, and each records all single requests' changes that arrived during the one before
(group commit). The more changes wait, the less each one costs: a single change needs four round trips and a synced
commit, a whole group about ten and one. The transaction waits for no lock and has its own thread. If it fails as a
whole in a conflict, its halves are tried. A change that is still not recorded (another transaction holds its row or
key, its key belongs to another change, the database refuses a value) is recorded alone, where it waits or gets its
error; so no change waits because of another one.

The answers are built by hand for speed: 300 writes a second take this path.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import Field
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from starlette.responses import Response

from oldhost_sync.api import http_limits
from oldhost_sync.api.bounded_waits import is_silent
from oldhost_sync.api.database import Database
from oldhost_sync.api.expected_arrival import ExpectedArrivals
from oldhost_sync.api.problems import commit_uncertain, too_busy
from oldhost_sync.api.requests import AnswerBody, RequestKey
from oldhost_sync.api.telemetry import note
from oldhost_sync.store.errors import (
    CommitUncertain,
    DatabaseUnavailable,
    InvalidChange,
    StatementRefused,
    StoreError,
    TransactionContended,
    UnsuitableServer,
    is_the_values_fault,
)
from oldhost_sync.store.intake.batch_recorder import LockWaits
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_recorder import NO_WAIT, RecordedChange, record_accepted
from oldhost_sync.store.intake.validation import Acceptable
from oldhost_sync.store.record import KEY
from oldhost_sync.store.transactions import run_in_transaction

# Certainly not recorded: each of these changes is tried alone, and gets an error of its own.
_NOT_RECORDED = (TransactionContended, InvalidChange, DatabaseUnavailable, UnsuitableServer)
# None: the group did not record this change.
_Result = RecordedChange | StoreError | None


class _Waiting(NamedTuple):
    change: Acceptable
    result: asyncio.Future[RecordedChange | None]


class GroupCommit:
    """Records the changes of single requests, all of one host."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Waiting] = deque()
        database.count_waiting(lambda: self.waiting)
        self._transaction: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Changes that wait for the next transaction."""
        return len(self._waiting)

    async def record(self, change: Acceptable) -> RecordedChange:
        """Returns when it is committed. Raises Problem or StoreError."""
        recorded = await self._with_others(change)
        if recorded is None:
            alone = partial(record_accepted, change=change)
            recorded = await self._database.run_for_entity(alone, change.host, change.entity_type, change.entity_id)
        return recorded

    async def _with_others(self, change: Acceptable) -> RecordedChange | None:
        if self._transaction is not None and self._database.circuit.is_open:
            raise self._database.circuit.problem()
        if len(self._waiting) >= http_limits.DATABASE_QUEUE_MAX:
            raise too_busy()
        mine = _Waiting(change, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        if self._transaction is None:
            self._begin()
        try:
            silent = await is_silent(mine.result, http_limits.DATABASE_QUEUE_SECONDS_MAX)
        except asyncio.CancelledError:
            mine.result.cancel()  # `_begin` leaves it out
            raise
        if silent and mine in self._waiting:
            self._waiting.remove(mine)
            self._database.notice_silence()
            raise too_busy()
        return await mine.result

    def _begin(self) -> None:
        """Begin the next transaction with the changes that wait."""
        group: list[_Waiting] = []
        while self._waiting and len(group) < http_limits.GROUP_COMMIT_MAX:
            change = self._waiting.popleft()
            if not change.result.done():
                group.append(change)
        self._transaction = asyncio.create_task(self._record(group)) if group else None

    async def _record(self, group: Sequence[_Waiting]) -> None:
        fn = partial(_record_together, changes=[entry.change for entry in group])
        results: Sequence[RecordedChange | Exception | None]
        try:
            results = await self._database.work(fn, one_at_a_time=True)
        except Exception as error:  # noqa: BLE001 - each request answers with it
            results = [error] * len(group)
        self._begin()
        for (_, waiting), result in zip(group, results, strict=True):
            if waiting.done():
                continue  # its request was cancelled
            if isinstance(result, Exception):
                waiting.set_exception(result)
            else:
                waiting.set_result(result)


def _record_together(engine: Engine, *, changes: Sequence[Acceptable]) -> Sequence[_Result]:
    """In one transaction, or in smaller ones after a conflict. Raises StoreError if nothing was recorded."""
    if len(changes) == 1:
        return [_record_one(engine, changes[0])]
    host, seconds = changes[0].host, http_limits.GROUP_COMMIT_SECONDS_MAX
    waits = LockWaits.FOR_NOTHING
    try:
        results = submit_changes(engine, host, changes, waits=waits, come_back=False, seconds_max=seconds)
    except (StatementRefused, DBAPIError):
        return [None] * len(changes)  # each is recorded alone, and whoever caused the error gets it
    return [None if isinstance(result, _NOT_RECORDED) else result for result in results]


def _record_one(engine: Engine, change: Acceptable) -> RecordedChange | None:
    """Record one change, with fewer statements than a group needs."""
    fn = partial(record_accepted, change=change, lock_wait=NO_WAIT)
    try:
        return run_in_transaction(engine, fn, attempts=1)
    except (TransactionContended, InvalidChange):
        return None
    except DBAPIError as error:
        if not is_the_values_fault(error):
            raise
        return None


T = TypeVar("T")
EXPECTED_AT = (
    "When OldHost is expected to have it, if no newer change replaces it; null in a repetition, while scheduled, and "
    "while nobody can know, as during a pause"
)


class Accepted(AnswerBody):
    """The change is recorded and will reach OldHost. The same Idempotency-Key and body give this answer again."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "sync_status": "PENDING_SYNC",
        "change_id": 4711,
        "idempotency_key": KEY,
        "expected_at": "2026-05-01T12:02:01.250Z",
        "keeps_promise": True,
    }

    sync_status: str = Field(description="PENDING_SYNC, or SCHEDULED until `not_before`")
    change_id: int | None = Field(description="The order token; null while scheduled")
    idempotency_key: str = Field(description="Ask GET /api/changes/{idempotency_key} for its fate")
    expected_at: datetime | None = Field(description=EXPECTED_AT)
    keeps_promise: bool | None = Field(description="Whether the promise for its class is kept then; null as before")


async def recorded(expected: ExpectedArrivals, recording: Awaitable[T], key: RequestKey) -> T:
    """Await it; if its commit is uncertain, the problem names the key to ask with."""
    expected.look()
    try:
        result = await recording
    except CommitUncertain:
        raise commit_uncertain(key.text) from None
    await expected.known()
    return result


async def recorded_answer(
    commits: GroupCommit, expected: ExpectedArrivals, change: Acceptable, key: RequestKey
) -> Response:
    """Record `change` and answer."""
    recording = commits.record(replace(change, key_is_new=key.is_new))
    return accepted_answer(expected, await recorded(expected, recording, key))


def accepted_answer(
    expected: ExpectedArrivals, change: RecordedChange, changes: Sequence[RecordedChange] = ()
) -> Response:
    """202. The first request and every repetition say the same of the change, whatever happened to it in between; only
    the first says when it is expected.
    """
    content = accepted_fields(expected, change)
    if changes:
        others = [accepted_fields(expected, entry) for entry in changes[1:]]
        content = {**content, "changes": [content, *others]}
    headers = {"Idempotency-Replayed": "true"} if change.duplicate else None
    return Response(json.dumps(content, separators=(",", ":")), 202, headers, "application/json")


def accepted_fields(expected: ExpectedArrivals, change: RecordedChange) -> dict[str, Any]:
    note(change)
    scheduled = change.scheduled_id is not None
    return {
        "sync_status": change.sync_status,
        # A scheduled change gets its id later, so the first answer had none.
        "change_id": None if scheduled else change.change_id,
        "idempotency_key": change.idempotency_key,
        **expected.of(change),
    }
