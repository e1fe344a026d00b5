"""Many changes in one request: each is checked and answered separately; the changes of one entity are recorded
together or not at all.

A batch is parsed and checked on a thread, so that single requests are not delayed; its answer is built by hand. 202
means that every change is recorded, 207 that some are not, and the results say which.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import Field

from oldhost_sync.api import limits, schemas
from oldhost_sync.api.access.auth import WRITERS, adder, caller_of
from oldhost_sync.api.access.doors import PROBLEM_KEY
from oldhost_sync.api.access.ownership import source_of
from oldhost_sync.api.bodies import parse_json, read_bytes, shaped, write_body
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.keys import RequestKey, request_key
from oldhost_sync.api.problems import Problem, commit_uncertain, invalid_change, of_store_error
from oldhost_sync.api.responses import accepted_fields
from oldhost_sync.api.schemas import BatchAccepted, NewChanges
from oldhost_sync.policy.limits import BATCH_CHANGES_MAX, IDEMPOTENCY_KEY_LENGTH_MAX, KEY_LENGTH_MAX
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, InvalidChange, TransactionContended
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_batch import Item, Result, Unacceptable
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields

_CLEAN = {
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "unit_status_changed",
    "payload": {"status": "Clean"},
    "idempotency_key": "housekeeping-2093-1",
}
_DOOR_CODE = {
    "entity_type": "unit",
    "entity_id": "7A",
    "event_type": "door_code_changed",
    "payload": {"door_code": "4711"},
    "idempotency_key": "housekeeping-2093-2",
}


class Envelope(schemas.Keyed):
    """A batch whose items are not validated yet, so that each wrong item is refused on its own."""

    changes: Annotated[list[Any], Field(min_length=1, max_length=BATCH_CHANGES_MAX)]


@dataclass(slots=True)
class Batch:
    """The items as they were read; `problems` and `keys` by the items' positions."""

    items: list[Item] = field(default_factory=list)
    problems: dict[int, Problem] = field(default_factory=dict)
    keys: list[str | None] = field(default_factory=list)


class BatchRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "changes")
        body = write_body(NewChanges, two_changes={"changes": [_CLEAN, _DOOR_CODE]})
        summary = "Create up to 500 changes"
        errors = (207, 405, 413, 415, 422)
        add("POST", "/api/changes/batch", self.create_batch, BatchAccepted, summary, WRITERS, errors, **body)

    async def create_batch(self, request: Request) -> Response:
        """One result for each change, by the rules of the route for one change; each item holds its idempotency key.

        The changes of one entity are recorded in their order, all or none: if one is refused, the others of its entity
        are answered with 424. Other entities are not affected. 202: all are recorded; 207: some are not. If no answer
        arrives, repeat the batch with the same keys: recorded changes get the same answer again.
        """
        body = await read_bytes(request, limits.BATCH_BODY_BYTES_MAX)
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
            try:
                results = await database.work(submit)
            except CommitUncertain:
                raise commit_uncertain(idempotency_keys=batch.keys) from None
        if all(isinstance(result, TransactionContended) for result in results):
            raise of_store_error(results[0])  # type: ignore[arg-type]
        refused = [each for each in results if isinstance(each, TransactionContended | DatabaseUnavailable)]
        if refused:
            request.scope[PROBLEM_KEY] = of_store_error(refused[0])
        return _answer(batch, results)


def read_batch(body: bytes, host: str, request: Request) -> Batch:
    """Raises a Problem for what is wrong with the batch as a whole: 400, 422."""
    envelope = shaped(parse_json(body), Envelope, "body")
    key, source = request_key(request, envelope.idempotency_key), source_of(request)
    batch = Batch()
    for index, change in enumerate(envelope.changes):
        item: Item
        try:
            item = _item(change, index, host, source, key)
        except InvalidChange as error:
            batch.problems[index] = invalid_change(error, f"body.changes.{index}")
            item = Unacceptable(error, _entity(change))
        batch.items.append(item)
        batch.keys.append(item.idempotency_key if isinstance(item, Acceptable) else _text(change, "idempotency_key"))
    return batch


def _item(change: Any, index: int, host: str, source: str, key: RequestKey) -> Acceptable:
    given = change_fields(change)
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


def _answer(batch: Batch, results: Sequence[Result]) -> Response:
    answers = [_result_fields(batch, index, result) for index, result in enumerate(results)]
    recorded = sum(result["problem"] is None for result in answers)
    content = {"recorded": recorded, "refused": len(answers) - recorded, "results": answers}
    status = HTTPStatus.ACCEPTED if recorded == len(answers) else HTTPStatus.MULTI_STATUS
    return Response(json.dumps(content, separators=(",", ":")), status, media_type="application/json")


def _result_fields(batch: Batch, index: int, result: Result) -> dict[str, Any]:
    if isinstance(result, RecordedChange):
        return {"status": 202, **accepted_fields(result), "replayed": result.duplicate, "problem": None}
    problem = batch.problems.get(index) or of_store_error(result, batch.keys[index])
    named = {"sync_status": None, "change_id": None, "idempotency_key": batch.keys[index]}
    return {"status": problem.status, **named, "replayed": False, "problem": problem.content}
