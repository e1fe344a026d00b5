"""Changes of any entity: create, schedule and cancel them, ask for the fate of one, follow all fates, or send many in
one request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import (
    PROBLEM_KEY,
    READERS,
    WRITERS,
    Caller,
    adder,
    caller_of,
    may_see,
    owns,
    seen_by,
    source_of,
)
from oldhost_sync.api.database import Database
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.expected_arrival import ExpectedArrivals
from oldhost_sync.api.problems import (
    Problem,
    ProblemBody,
    commit_uncertain,
    cursor_gone,
    cursor_unknown,
    invalid_change,
    of_store_error,
    unknown_change,
)
from oldhost_sync.api.requests import (
    AnswerBody,
    Id,
    Key,
    Keyed,
    Limit,
    Moment,
    Name,
    RequestKey,
    parse_json,
    read_bytes,
    read_feed_cursor,
    read_value,
    request_key,
    shaped,
    traceparent_of,
    write_body,
)
from oldhost_sync.api.writes import EXPECTED_AT, Accepted, accepted_answer, accepted_fields, recorded, recorded_answer
from oldhost_sync.policy.limits import (
    BATCH_CHANGES_MAX,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    KEY_LENGTH_MAX,
)
from oldhost_sync.settings import Role
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, InvalidChange, TransactionContended
from oldhost_sync.store.intake import schedule
from oldhost_sync.store.intake.batch_recorder import Item, Result, Unacceptable
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_recorder import SCHEDULED, RecordedChange, record_change
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields
from oldhost_sync.store.read import change_feed, change_status
from oldhost_sync.store.read.batch_progress import BatchProgress, batch_progress, summed
from oldhost_sync.store.read.change_status import Fate
from oldhost_sync.store.record import KEY

# `:path`, because a key may hold a slash.
_CHANGE = "/api/changes/{idempotency_key:path}"
KeyInPath = Annotated[
    str, Path(min_length=1, max_length=IDEMPOTENCY_KEY_LENGTH_MAX, description="The write's idempotency key")
]
Since = Annotated[
    str | None,
    Query(
        max_length=64,
        description="`next_cursor` of the last answer; 'latest': only fates that are decided from now on; "
        "left out: from the oldest fate on",
    ),
]
LATEST = "latest"

_DOOR_CODE = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "door_code_changed",
    "payload": {"door_code": "4711"},
}
_EMERGENCY = {"entity_type": "unit", "entity_id": "12B", "event_type": "guest_locked_out", "payload": {"guest": "g-77"}}


class NewChange(Keyed):
    """A change of any entity. The server's rules decide its class (EMERGENCY, TXN, LWW) by `event_type`."""

    entity_type: Name = Field(examples=["unit"])
    entity_id: Id = Field(examples=["12B"])
    event_type: Name = Field(examples=["door_code_changed"])
    payload: dict[str, Any] = Field(examples=[{"door_code": "4711"}], description="At most 30 KiB of JSON, 16 levels.")
    occurred_at: Moment | None = Field(
        default=None, description="When it happened in your application. For information: it does not affect the order."
    )
    not_before: Moment | None = Field(default=None, description="Record the change at this time, not earlier.")
    traceparent: Any = Field(
        default=None,
        description="Your span by W3C Trace Context, of which the change's are children; left out: the header "
        "`traceparent`. One that is not valid is ignored.",
        examples=["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    )


class Cancelled(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"idempotency_key": KEY, "cancelled_at": "2026-05-01T12:00:00Z"}

    idempotency_key: str
    cancelled_at: datetime


class FeedItem(AnswerBody):
    """A change that has reached its fate."""

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str
    outcome: str
    accepted_at: datetime
    processed_at: datetime
    nonce: int | None
    superseded_by: int | None
    error: str | None
    unconfirmed: bool = Field(
        description="APPLIED, but no answer of OldHost says so: only its nonce was used, or an operator confirmed it"
    )
    unsure: bool = Field(
        description="DEAD, and OldHost's answer says neither applied nor rejected: an operator decides"
    )


class Feed(AnswerBody):
    """Fates in the order in which they were decided; a change that is retried appears again with its new fate."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "changes": [
            {
                "change_id": 4711,
                "idempotency_key": KEY,
                "entity_type": "unit",
                "entity_id": "12B",
                "event_type": "unit_status_changed",
                "priority_class": "LWW",
                "accepted_at": "2026-05-01T12:00:00Z",
                "processed_at": "2026-05-01T12:01:02Z",
                "nonce": 501,
                "error": None,
                "outcome": "APPLIED",
                "superseded_by": None,
                "unconfirmed": False,
                "unsure": False,
            },
            {
                "change_id": 4712,
                "idempotency_key": "booking-2093-checked-in",
                "entity_type": "unit",
                "entity_id": "12B",
                "event_type": "checked_in",
                "priority_class": "TXN",
                "accepted_at": "2026-05-01T12:00:30Z",
                "processed_at": "2026-05-01T12:01:03Z",
                "nonce": 502,
                "error": "no such guest",
                "outcome": "DEAD",
                "superseded_by": None,
                "unconfirmed": False,
                "unsure": False,
            },
        ],
        "next_cursor": "1777636863000000-4712",
        "more": False,
        "next_poll": 1,
    }

    changes: list[FeedItem]
    next_cursor: str = Field(description="Pass it as `since` in the next request")
    more: bool = Field(description="More fates are available already: request the next page at once")
    next_poll: int = Field(description="Seconds to wait before asking again")


class ChangeRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "changes")
        later = {**_DOOR_CODE, "not_before": "2026-12-24T14:00:00Z"}
        body = write_body(NewChange, a_door_code=_DOOR_CODE, an_emergency=_EMERGENCY, later=later)
        add("POST", "/api/changes", self.create, Accepted, "Create a change", WRITERS, (405, 413, 415, 422), **body)
        follow = "Follow the fates of changes"
        add("GET", "/api/changes", self.feed, Feed, follow, READERS, (304, 405, 410, 422))
        add("GET", _CHANGE, self.fate, Fate, "A change's fate, with all its steps", READERS, (404, 405, 422))
        cancel = "Cancel a scheduled change that is not due yet"
        add("DELETE", _CHANGE, self.cancel, Cancelled, cancel, WRITERS, (404, 405, 409, 422))

    async def create(self, request: Request) -> Response:
        """Recorded at once, or kept until `not_before`. The server's rules decide its class, the database its order."""
        host, source = self._dependencies.host, source_of(request)
        try:
            given = change_fields(await read_value(request), traceparent_of(request.headers))
            change = accept(host=host, source=source, **given)
        except InvalidChange as error:
            raise invalid_change(error, "body") from None
        key = request_key(request, given["idempotency_key"])
        change = replace(change, idempotency_key=key.text, key_is_new=key.is_new)
        caller, quotas, expected = caller_of(request), self._dependencies.quotas, self._dependencies.expected
        quotas.changes(caller, [change.event_type])
        if change.not_before is not None:
            fn = partial(self._schedule, change=change, given=given)
            with quotas.given_back(caller, [change.event_type]):
                return accepted_answer(expected, await recorded(expected, self._dependencies.database.run(fn), key))
        return await recorded_answer(self._dependencies.commits, expected, change, key)

    def _schedule(self, connection: Connection, *, change: Acceptable, given: Mapping[str, Any]) -> RecordedChange:
        host, key = change.host, change.idempotency_key
        recorded = record_change(connection, host=host, source=change.source, **{**given, "idempotency_key": key})
        if not recorded.duplicate:
            self._dependencies.quotas.scheduled(connection, [change])
        elif recorded.scheduled_id is None:
            # It was scheduled and has been recorded since: the first answer was that for the scheduled change.
            scheduled = schedule.scheduled_of_key(connection, host, key)
            if scheduled is not None:
                return replace(recorded, scheduled_id=scheduled.scheduled_id, sync_status=SCHEDULED)
        return recorded

    async def fate(self, request: Request, idempotency_key: KeyInPath) -> Fate:
        """All steps with their times (accepted, relayed, reserved, sent, answered), and what the change is waiting for.
        An application can only ask for its own changes: one that another token made is not found.
        """
        host = self._dependencies.host
        fate = await self._dependencies.database.run(
            lambda connection: change_status.find_fate(connection, host, idempotency_key)
        )
        if fate is None or not may_see(caller_of(request), fate.source):
            raise _unknown()
        return seen_by(caller_of(request), fate)

    async def cancel(self, request: Request, idempotency_key: KeyInPath) -> Cancelled:
        """Possible until the change is due. An application can cancel its own changes, an operator any. It is recorded
        in the audit. Cancelling twice is not an error.
        """
        fn = partial(_cancel, host=self._dependencies.host, idempotency_key=idempotency_key, caller=caller_of(request))
        cancelled_at = await self._dependencies.database.run(fn)
        return Cancelled(idempotency_key=idempotency_key, cancelled_at=cancelled_at)

    async def feed(self, request: Request, since: Since = None, limit: Limit = http_limits.PAGE_DEFAULT) -> Response:
        """Every fate once, in the order in which they were decided; none is skipped, even if transactions overlap.

        410: fates after this cursor have been deleted (they are kept for 90 days), or the database was restored and
        lacks the fate that you saw last. Read the present state of what you follow (`GET /api/units`), and continue
        from the cursor that the answer names. An application does not get the fates of other tokens' changes, so a page
        may be short or empty although there is `more`.
        """
        database, host = self._dependencies.database, self._dependencies.host
        page = await read_page(database, host, await feed_start(database, host, since), limit)
        caller = caller_of(request)
        seen = [seen_by(caller, row) for row in page.rows if may_see(caller, row.pop("source"))]
        return _feed_answer(replace(page, rows=seen), request.headers.get("if-none-match"))


async def feed_start(database: Database, host: str, since: str | None) -> change_feed.FeedCursor:
    """Raises a Problem for what is no cursor."""
    if since == LATEST:
        return await database.run(lambda connection: change_feed.latest_cursor(connection, host))
    return change_feed.BEGINNING if since is None else read_feed_cursor(since)


async def read_page(database: Database, host: str, start: change_feed.FeedCursor, limit: int) -> change_feed.FeedPage:
    """The fates after `start`, of all tokens. Raises a Problem, 410, if the feed can't continue there."""
    try:
        return await database.run(lambda connection: change_feed.read_feed(connection, host, start, limit=limit))
    except change_feed.CursorForgotten as forgotten:
        raise cursor_gone("Fates after this cursor are no longer kept.", oldest=forgotten.oldest.text) from None
    except change_feed.CursorUnknown as unknown:
        raise cursor_unknown(oldest=unknown.oldest.text, latest=unknown.latest.text) from None


def _cancel(connection: Connection, *, host: str, idempotency_key: str, caller: Caller) -> datetime:
    """Returns when it was cancelled, now or earlier. Raises a Problem: 403, 404 or 409."""
    fate = change_status.find_fate(connection, host, idempotency_key)
    if fate is None or not may_see(caller, fate.source):
        raise _unknown()
    if caller.role is not Role.OPS and not owns(caller, fate.source):
        raise Problem(
            403,
            "not-yours",
            "Your token did not make this change",
            "An application can only cancel changes that its own token made.",
            "Ask an operator to cancel it.",
        )
    schedule.cancel_by_operator(connection, host, idempotency_key, operator=caller.operator, reason="")
    scheduled = schedule.scheduled_of_key(connection, host, idempotency_key)
    if scheduled is not None and scheduled.cancelled_at is not None:
        return scheduled.cancelled_at
    raise Problem(
        409,
        "already-recorded",
        "It is too late to cancel this change",
        "It is recorded and is sent, or will be sent, to OldHost.",
        "Make another change that undoes it; GET /api/changes/{idempotency_key} shows its progress.",
    )


def _unknown() -> Problem:
    return unknown_change("No change has that key, or it is too old and has been deleted.")


def _feed_answer(page: change_feed.FeedPage, if_none_match: str | None) -> Response:
    poll = _next_poll(page)
    content = Feed(
        changes=[FeedItem(**row) for row in page.rows],
        next_cursor=page.cursor.text,
        more=page.more,
        next_poll=poll,
    )
    # The ETag does not cover `next_poll`, which is only advice.
    known = content.model_dump_json(exclude={"next_poll"})
    tag = f'"{hashlib.sha256(known.encode()).hexdigest()[:32]}"'
    headers = {"ETag": f"W/{tag}", "Cache-Control": "private, no-cache", "Retry-After": str(poll)}
    if if_none_match is not None and _matches(tag, if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content.model_dump_json(), headers=headers, media_type="application/json")


def _matches(tag: str, if_none_match: str) -> bool:
    """RFC 9110, 13.1.2: any tag of the list matches by weak comparison, or the header is `*`."""
    etags = [etag.strip().removeprefix("W/") for etag in if_none_match.split(",")]
    return tag in etags or etags == ["*"]


def _next_poll(page: change_feed.FeedPage) -> int:
    """At once while there is more, soon after a page with fates, and least often when nothing is outstanding."""
    if page.more:
        return 0
    if page.rows:
        return http_limits.FEED_POLL_SECONDS_BUSY
    return http_limits.FEED_POLL_SECONDS if page.outstanding else http_limits.FEED_POLL_SECONDS_IDLE


# -------------------------------------------------------------------------------------------------------------- batches

_CLEAN = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "unit_status_changed",
    "payload": {"status": "Clean"},
    "idempotency_key": "housekeeping-2093-1",
}
_ANOTHER = {
    "entity_type": "unit",
    "entity_id": "7A",
    "event_type": "door_code_changed",
    "payload": {"door_code": "4711"},
    "idempotency_key": "housekeeping-2093-2",
}


class BatchChange(NewChange):
    """One change of a batch, with its own idempotency key."""

    idempotency_key: Key | None = Field(
        default=None,
        description="Your name for this change. If it is missing, it is built from the batch's key and the item's "
        "position (`key:0`); if the batch has no key either, the server creates one.",
        examples=[KEY],
    )


class NewChanges(Keyed):
    """Up to 500 changes. The changes of one entity are recorded in this order, all of them or none."""

    changes: list[BatchChange] = Field(min_length=1, max_length=BATCH_CHANGES_MAX)


class BatchResult(AnswerBody):
    """The result for one change of a batch, as the route for a single change would have answered."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "status": 202,
        **Accepted.EXAMPLE,
        "replayed": False,
        "problem": None,
    }

    status: int = Field(
        description="202: recorded · 422: refused, see `problem` · 424: not recorded, because another change of its "
        "entity was refused · 503: not recorded now (`commit-uncertain`: it may have been recorded); repeat it with "
        "its key",
    )
    sync_status: str | None = Field(description="PENDING_SYNC or SCHEDULED when recorded")
    change_id: int | None = Field(description="The order token; null while scheduled")
    idempotency_key: str | None
    expected_at: datetime | None = Field(description=EXPECTED_AT)
    keeps_promise: bool | None = Field(description="Whether the promise for its class is kept then; null as before")
    replayed: bool = Field(description="It was recorded earlier under this key; this is the first answer")
    problem: ProblemBody | None = Field(description="Why it was not recorded")


_NAME_REFUSED = "entity_type must be 1 to 64 of the characters A-Z a-z 0-9 _ . - and not begin with -"


class BatchAccepted(AnswerBody):
    """One result for each change, in the order of the request. Every recorded change is durable."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "recorded": 1,
        "refused": 1,
        "results": [
            BatchResult.EXAMPLE,
            {
                "status": 422,
                "sync_status": None,
                "change_id": None,
                "idempotency_key": "booking-2093-checked-in",
                "expected_at": None,
                "keeps_promise": None,
                "replayed": False,
                "problem": {
                    "type": "urn:oldhost-sync:problem:invalid",
                    "title": "The request has a mistake",
                    "status": 422,
                    "detail": f"entity_type: {_NAME_REFUSED}",
                    "action": "Correct the field and send it again; GET /openapi.json describes it.",
                    "errors": [
                        {
                            "field": "entity_type",
                            "message": _NAME_REFUSED,
                        }
                    ],
                },
            },
        ],
    }

    recorded: int = Field(description="How many changes are recorded, by this request or an earlier one")
    refused: int = Field(description="How many changes are not recorded")
    results: list[BatchResult]


class Envelope(Keyed):
    """A batch whose items are not validated yet, so that each wrong item is refused on its own."""

    changes: Annotated[list[Any], Field(min_length=1, max_length=BATCH_CHANGES_MAX)]


@dataclass(slots=True)
class Batch:
    """The items as they were read; `problems` and `keys` by the items' positions."""

    items: list[Item] = field(default_factory=list)
    problems: dict[int, Problem] = field(default_factory=dict)
    keys: list[str | None] = field(default_factory=list)


class BatchRoutes:
    """Many changes in one request: each is checked and answered separately; the changes of one entity are recorded
    together or not at all.

    A batch is parsed and checked on a thread, so that single requests are not delayed; its answer is built by hand. 202
    means that every change is recorded, 207 that some are not, and the results say which.
    """

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "changes")
        body = write_body(NewChanges, two_changes={"changes": [_CLEAN, _ANOTHER]})
        summary = "Create up to 500 changes"
        errors = (207, 405, 413, 415, 422)
        add("POST", "/api/changes/batch", self.create_batch, BatchAccepted, summary, WRITERS, errors, **body)
        progress = "How far a batch is"
        add("GET", "/api/batches/{idempotency_key:path}", self.progress, BatchProgress, progress, READERS, (404, 405))

    async def progress(self, request: Request, idempotency_key: KeyInPath) -> BatchProgress:
        """Counts by state the changes of a batch that had this Idempotency-Key; not those with a key of their own."""
        host, caller = self._dependencies.host, caller_of(request)
        found = await self._dependencies.database.run(lambda each: batch_progress(each, host, idempotency_key))
        seen = [each for each in found if may_see(caller, each[0])]
        if not seen:
            raise unknown_change("No batch had that key, or it is too old and its changes have been deleted.")
        return summed(idempotency_key, seen)

    async def create_batch(self, request: Request) -> Response:
        """One result for each change, by the rules of the route for one change; each item holds its idempotency key.

        The changes of one entity are recorded in their order, all or none: if one is refused, the others of its entity
        are answered with 424. Other entities are not affected. 202: all are recorded; 207: some are not. If no answer
        arrives, repeat the batch with the same keys: recorded changes get the same answer again.
        """
        body = await read_bytes(request, http_limits.BATCH_BODY_BYTES_MAX)
        request_key(request)  # an invalid header is refused before its batch waits
        host, database = self._dependencies.host, self._dependencies.database
        async with database.turn_of_a_batch():
            batch = await asyncio.to_thread(read_batch, body, host, request)
            made = [item for item in batch.items if isinstance(item, Acceptable)]
            quotas, caller = self._dependencies.quotas, caller_of(request)
            types = [item.event_type for item in made]
            quotas.changes(caller, types)
            if quotas.are_scheduled(made):
                with quotas.given_back(caller, types):
                    await database.run(partial(quotas.scheduled, changes=made))
            submit = partial(submit_changes, host=host, items=batch.items)
            self._dependencies.expected.look()
            try:
                results = await database.work(submit)
            except CommitUncertain:
                raise commit_uncertain(idempotency_keys=batch.keys) from None
        if all(isinstance(result, TransactionContended) for result in results):
            raise of_store_error(results[0])  # type: ignore[arg-type]
        refused = [result for result in results if isinstance(result, TransactionContended | DatabaseUnavailable)]
        if refused:
            request.scope[PROBLEM_KEY] = of_store_error(refused[0])
        await self._dependencies.expected.known()
        return _answer(self._dependencies.expected, batch, results)


def read_batch(body: bytes, host: str, request: Request) -> Batch:
    """Raises a Problem for what is wrong with the batch as a whole: 400, 422."""
    envelope = shaped(parse_json(body), Envelope, "body")
    key, source = request_key(request, envelope.idempotency_key), source_of(request)
    traceparent = traceparent_of(request.headers)
    batch = Batch()
    for index, change in enumerate(envelope.changes):
        item: Item
        try:
            item = _item(change_fields(change, traceparent), index, host, source, key)
        except InvalidChange as error:
            batch.problems[index] = invalid_change(error, f"body.changes.{index}")
            item = Unacceptable(error, _entity(change))
        batch.items.append(item)
        batch.keys.append(item.idempotency_key if isinstance(item, Acceptable) else _text(change, "idempotency_key"))
    return batch


def _item(given: dict[str, Any], index: int, host: str, source: str, key: RequestKey) -> Acceptable:
    key_length_max = KEY_LENGTH_MAX
    if given["idempotency_key"] is None and not key.is_new:
        given["idempotency_key"], key_length_max = f"{key.text}:{index}", IDEMPOTENCY_KEY_LENGTH_MAX
    return accept(host=host, source=source, key_length_max=key_length_max, **given)


def _entity(change: Any) -> tuple[str, str] | None:
    entity_type, entity_id = _text(change, "entity_type"), _text(change, "entity_id")
    return None if entity_type is None or entity_id is None else (entity_type, entity_id)


def _text(change: Any, name: str) -> str | None:
    value = change.get(name) if isinstance(change, dict) else None
    return value if isinstance(value, str) else None


def _answer(expected: ExpectedArrivals, batch: Batch, results: Sequence[Result]) -> Response:
    answers = [_result_fields(expected, batch, index, result) for index, result in enumerate(results)]
    recorded = sum(result["problem"] is None for result in answers)
    content = {"recorded": recorded, "refused": len(answers) - recorded, "results": answers}
    status = HTTPStatus.ACCEPTED if recorded == len(answers) else HTTPStatus.MULTI_STATUS
    return Response(json.dumps(content, separators=(",", ":")), status, media_type="application/json")


def _result_fields(expected: ExpectedArrivals, batch: Batch, index: int, result: Result) -> dict[str, Any]:
    if isinstance(result, RecordedChange):
        return {"status": 202, **accepted_fields(expected, result), "replayed": result.duplicate, "problem": None}
    problem = batch.problems.get(index) or of_store_error(result, batch.keys[index])
    named = {"sync_status": None, "change_id": None, "idempotency_key": batch.keys[index]}
    named |= {"expected_at": None, "keeps_promise": None}
    return {"status": problem.status, **named, "replayed": False, "problem": problem.content}
