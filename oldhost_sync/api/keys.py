"""The `Idempotency-Key` header and the cursors of lists: text from clients that must be validated."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import Query, Request
from pydantic import Field

from oldhost_sync.api import limits
from oldhost_sync.api.field_types import WHOLE
from oldhost_sync.api.problems import Problem, field_invalid
from oldhost_sync.fields.errors import InvalidField
from oldhost_sync.fields.text import read_key
from oldhost_sync.policy.limits import INTEGER_MAX, KEY_LENGTH_MAX, KEY_PATTERN
from oldhost_sync.store.views.change_feed import END_US, FeedCursor
from oldhost_sync.store.views.scheduled_list import BEGINNING as SOONEST
from oldhost_sync.store.views.scheduled_list import ScheduledPlace

# The number of a fate, its time in microseconds, its change.
_FEED_CURSOR = re.compile(r"f([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})")

Limit = Annotated[
    int, Field(ge=1, le=limits.PAGE_MAX), WHOLE, Query(description="The largest number of entries on a page")
]
Cursor = Annotated[str | None, Query(max_length=1024, description="`next_cursor` of the previous page")]

KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Your name for this request. A repetition with the same key and body gets the first answer and "
    "records nothing. `idempotency_key` in the body has the same effect.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX, "pattern": f"^{KEY_PATTERN}$"},
    "example": "3f6c2b1e-0a57-4f0e-9a5e-0d1f6f2f7a11",
}


class RequestKey(NamedTuple):
    """The key that a write is recorded under. A new key can't have been used before, so it is not looked up."""

    text: str
    is_new: bool


def request_key(request: Request, in_body: str | None = None) -> RequestKey:
    """The request's key, from its header or its body (where it is already validated); a new key if it has none."""
    key = request.headers.get("idempotency-key")
    if key is None:
        if in_body is not None:
            return RequestKey(in_body, is_new=False)
        return RequestKey(str(uuid.uuid4()), is_new=True)
    if in_body is not None and in_body != key:
        raise field_invalid("body.idempotency_key", "differs from the Idempotency-Key header; send only one of them")
    try:
        return RequestKey(read_key("idempotency_key", key), is_new=False)
    except InvalidField as error:
        raise field_invalid("header.Idempotency-Key", str(error)) from None


def text_cursor(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def read_text_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _no_cursor("cursor") from None


def read_number_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor[:20]) > INTEGER_MAX or len(cursor) > 19:
        raise _no_cursor("cursor")
    return int(cursor)


def scheduled_cursor(place: ScheduledPlace) -> str:
    return text_cursor(f"{place.not_before.isoformat()} {place.scheduled_id}")


def read_scheduled_cursor(cursor: str | None) -> ScheduledPlace:
    if cursor is None:
        return SOONEST
    moment, _, number = (read_text_cursor(cursor) or "").partition(" ")
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise _no_cursor("cursor") from None
    if at.tzinfo is not None or not re.fullmatch("[0-9]{1,18}", number):
        raise _no_cursor("cursor")
    return ScheduledPlace(at, int(number))


def feed_cursor(cursor: FeedCursor) -> str:
    return f"f{cursor.sequence}.{cursor.processed_at_us}.{cursor.change_id}"


def read_feed_cursor(text: str) -> FeedCursor:
    """Raises 422 for what is no cursor."""
    found = _FEED_CURSOR.fullmatch(text)
    if found is None or int(found[2]) > END_US:
        raise _no_cursor("since")
    return FeedCursor(int(found[1]), int(found[2]), int(found[3]))


def _no_cursor(field: str) -> Problem:
    return field_invalid(
        f"query.{field}", "is not a cursor of this server; leave it out for the first page, then use `next_cursor`"
    )
