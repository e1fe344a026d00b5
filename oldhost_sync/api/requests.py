"""What a request says: its fields, its query, its idempotency key, its cursor and its body. Every text is validated, by
the parsers of `oldhost_sync.fields`; what is wrong is refused with the field's name.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import FIELD, OWN_WORDS, Problem, field_invalid, fields_invalid
from oldhost_sync.fields.json_text import DUPLICATE_NAME, NOT_JSON, check_json, read_json
from oldhost_sync.fields.scalar import (
    InvalidField,
    read_decimal,
    read_flag,
    read_id,
    read_json_whole,
    read_key,
    read_label,
    read_moment,
    read_name,
    read_whole,
)
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import (
    ID_LENGTH_MAX,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    INTEGER_MAX,
    KEY_LENGTH_MAX,
    KEY_PATTERN,
    MOMENT_PATTERN,
    NAME_PATTERN,
    TEXT_LENGTH_MAX,
    UNIT_NAME_LENGTH_MAX,
    UNIT_STATUS_LENGTH_MAX,
    YEAR_MAX,
    YEAR_MIN,
)
from oldhost_sync.store.read.change_feed import FeedCursor
from oldhost_sync.store.read.change_list import BEGINNING as SOONEST
from oldhost_sync.store.read.change_list import ChangeFilter, ScheduledPlace
from oldhost_sync.store.record import KEY, complete_schema

# --------------------------------------------------------------------------------------------------------------- fields

# The parsers of fields as types of models and query parameters, with their part of the OpenAPI document.


def _by(parser: Callable[..., Any], *rest: Any, texts_only: bool = False) -> BeforeValidator:
    """`texts_only`: a default, or a value that the framework has converted, is taken as it is."""

    def read(value: object) -> Any:
        if value is None or (texts_only and not isinstance(value, str)):
            return value
        try:
            return parser(FIELD, value, *rest)
        except InvalidField as error:
            raise PydanticCustomError(OWN_WORDS, "{message}", {"message": str(error)}) from None

    return BeforeValidator(read)


# The characters that Python calls printable, and those that are no control characters.
_PRINTABLE = r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$"
_NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f]+$"


def _text(length_max: int, pattern: str) -> Any:
    return Field(min_length=1, max_length=length_max, json_schema_extra={"pattern": pattern})


_YEARS = "(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])"
assert YEAR_MIN == 1970
assert YEAR_MAX == 9998
MOMENT_SCHEMA = {
    "type": "string",
    "format": "date-time",
    "pattern": f"^{_YEARS}{MOMENT_PATTERN.removeprefix('[0-9]{4}')}$",
    "description": f"RFC 3339 with an offset, in a year from {YEAR_MIN} to {YEAR_MAX}; microseconds "
    "at most, further digits are cut.",
}

Moment = Annotated[datetime, _by(read_moment), WithJsonSchema(MOMENT_SCHEMA)]
Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$"), _by(read_name)]
Id = Annotated[str, _text(ID_LENGTH_MAX, _PRINTABLE), _by(read_id)]
# Of what is recorded: it may be derived from the key that was given.
RecordedKey = Annotated[
    str,
    Field(pattern=f"^{KEY_PATTERN}$", max_length=IDEMPOTENCY_KEY_LENGTH_MAX),
    _by(read_key, IDEMPOTENCY_KEY_LENGTH_MAX),
]
Key = Annotated[str, Field(pattern=f"^{KEY_PATTERN}$", max_length=KEY_LENGTH_MAX), _by(read_key)]
UnitStatusText = Annotated[str, _text(UNIT_STATUS_LENGTH_MAX, _NO_CONTROLS), _by(read_label, UNIT_STATUS_LENGTH_MAX)]
UnitNameText = Annotated[str, _text(UNIT_NAME_LENGTH_MAX, _NO_CONTROLS), _by(read_label, UNIT_NAME_LENGTH_MAX)]

# Validators for query parameters and paths, where everything is text. In an `Annotated` they follow the `Field` with
# the bounds: only so are those in the OpenAPI document.
WHOLE = _by(read_whole, texts_only=True)
DECIMAL = _by(read_decimal, texts_only=True)
FLAG = _by(read_flag, texts_only=True)
# A form sends an empty text for an empty field. It comes last in an `Annotated`: then it is asked first.
BLANK_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
# For a number in a JSON body.
JSON_WHOLE = _by(read_json_whole)
RowId = Annotated[int, Field(ge=1, le=INTEGER_MAX), WHOLE]


# ---------------------------------------------------------------------------------------------------------------- query


async def understood_query(request: Request) -> None:
    """A dependency of all routes. Raises 422, which names each parameter that is unknown or given more than once.

    Otherwise a misspelt filter would be ignored silently, and the unfiltered answer would be taken for a filtered one.
    """
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    known = _parameters(route.dependant) if isinstance(route, APIRoute) else frozenset()
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = "is not a parameter of this route, which takes " + (", ".join(sorted(known)) or "none")
    errors = [
        {"loc": ("query", name[:100]), "msg": "is given more than once" if name in known else unknown}
        for name, times in given.items()
        if times > 1 or name not in known
    ]
    if errors:
        raise fields_invalid(errors)


def _parameters(dependant: Dependant) -> frozenset[str]:
    """The query parameters of a route, including those of its dependencies."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*(_parameters(dependency) for dependency in dependant.dependencies))


# ------------------------------------------------------------------------------------------ idempotency key and cursors

Limit = Annotated[
    int, Field(ge=1, le=http_limits.PAGE_MAX), WHOLE, Query(description="The largest number of entries on a page")
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


def traceparent_of(headers: Headers) -> str | None:
    """Which span of which trace the caller is in; not checked yet."""
    given = headers.getlist("traceparent")
    return given[0].strip() if len(given) == 1 else None


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


def read_feed_cursor(text: str) -> FeedCursor:
    """Raises 422 for what is no cursor."""
    try:
        return FeedCursor.parse(text)
    except ValueError:
        raise _no_cursor("since") from None


def _no_cursor(field: str) -> Problem:
    return field_invalid(
        f"query.{field}", "is not a cursor of this server; leave it out for the first page, then use `next_cursor`"
    )


# ----------------------------------------------------------------------------------------------------------------- body

M = TypeVar("M", bound=BaseModel)


Reason = Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH_MAX, description="Why; recorded in the audit.")]


class RequestBody(BaseModel):
    """Unknown fields are refused: a misspelt `not_before` must not cause a change to be sent at once."""

    model_config = ConfigDict(extra="forbid")


class AnswerBody(BaseModel):
    """What only the API answers with; other answers are records of the store. An `EXAMPLE` stands beside its fields."""

    model_config = ConfigDict(json_schema_extra=complete_schema)


class Keyed(RequestBody):
    """A request that records something, under an idempotency key that the caller may choose."""

    idempotency_key: Key | None = Field(
        default=None,
        description="Your name for this request, like the Idempotency-Key header; if both are given they must be "
        "equal. If neither is given, the server creates one.",
        examples=[KEY],
    )


class ReasonedRequest(RequestBody):
    """An operator's reason."""

    reason: Reason = Field(examples=["Corrected the guest's record at OldHost."])


async def read_body(request: Request, model: type[M]) -> M:
    """The body as `model`. Raises a Problem: 400 not JSON, 413 too large, 415 wrong media type, 422 a wrong field."""
    return parse_body(await read_bytes(request, http_limits.REQUEST_BODY_BYTES_MAX), model)


async def read_value(request: Request) -> Any:
    """The body as a JSON value whose depth, texts and numbers are not checked yet. Raises a Problem, as `read_body`."""
    return parse_json(await read_bytes(request, http_limits.REQUEST_BODY_BYTES_MAX))


async def read_bytes(request: Request, bytes_max: int) -> bytes:
    """A JSON body, not parsed yet. Raises a Problem: 413 too large, 415 wrong media type."""
    content_type = request.headers.get("content-type")
    if content_type is not None and content_type.partition(";")[0].strip().lower() != "application/json":
        raise Problem(
            415,
            "not-json",
            "The body must be JSON",
            "The Content-Type is not application/json.",
            "Send the body as JSON, with Content-Type: application/json.",
        )
    return await _read_bounded(request, bytes_max)


def parse_body(body: bytes, model: type[M]) -> M:
    return checked(parse_json(body), model, "body")


def parse_json(body: bytes) -> Any:
    """Raises a Problem: 400, 422. Depth, texts and numbers are not checked yet."""
    try:
        return read_json(body)
    except InvalidField as error:
        raise _not_read(error) from None


def _not_read(error: InvalidField) -> Problem:
    """The parser's text names the place and the kind of mistake, not the content."""
    if error.kind == DUPLICATE_NAME:
        action = "Send each name only once in an object: different programs would use different values."
        return Problem(400, DUPLICATE_NAME, "A name occurs twice", f"The body: {error}.", action)
    if error.kind == NOT_JSON:
        action = "Send one JSON object in UTF-8, without NaN or Infinity."
        return Problem(400, NOT_JSON, "The body is not JSON", f"The body: {error}.", action)
    return field_invalid("body", str(error))


def checked(value: Any, model: type[M], place: str) -> M:
    """`value` as `model`. Raises a Problem, 422; its field names begin with `place`."""
    try:
        check_json(place, value, http_limits.REQUEST_JSON_DEPTH_MAX)
    except InvalidField as error:
        raise field_invalid(place, str(error)) from None
    return shaped(value, model, place)


def shaped(value: Any, model: type[M], place: str) -> M:
    """Like `checked`, but without the checks of depth, texts and numbers: parts of type `Any` are not checked."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise fields_invalid(
            error.errors(include_url=False, include_input=False, include_context=False), place
        ) from None


async def _read_bounded(request: Request, bytes_max: int) -> bytes:
    """The whole body; refused as soon as it is known to be too long, with a Content-Length or without (chunked)."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:12]) > bytes_max:
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(chunk)
    except ClientDisconnect:
        detail = "The connection was closed before the whole body had arrived."
        raise Problem(400, "cut", "The body is incomplete", detail, "Repeat the request.") from None
    return b"".join(parts)


def _too_large(bytes_max: int) -> Problem:
    # The rest of the body is not read, so the connection can't be used for another request.
    return Problem(
        413,
        "too-large",
        "The body is too large",
        f"At most {bytes_max} bytes are accepted.",
        "Send less: a payload holds what has changed, not documents.",
        {"Connection": "close"},
    )


def write_body(model: type[BaseModel], **examples: Mapping[str, Any]) -> dict[str, Any]:
    """Like `json_body`, for a route that records something: it takes an idempotency key and answers 202."""
    return {"status_code": HTTPStatus.ACCEPTED, "parameters": [KEY_PARAMETER], **json_body(model, **examples)}


def json_body(model: type[BaseModel], **examples: Mapping[str, Any]) -> dict[str, Any]:
    """The request body's part of the OpenAPI document; the routes read their bodies themselves."""
    named = {name.replace("_", " "): {"value": dict(value)} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}


# ------------------------------------------------------------------------------------- the filters of a list of changes

ANSWER_LENGTH_MAX = 200
# Ten years: retention is shorter.
WAITED_S_MAX = 315_360_000

Outcome = Literal["OUTSTANDING", "APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "WITHDRAWN", "REFUSED"]


@dataclass
class ChangeQuery:
    """Each parameter restricts the list to the changes that match it."""

    entity_type: Annotated[Name | None, Query()] = None
    entity_id: Annotated[Id | None, Query()] = None
    outcome: Annotated[Outcome | None, Query(description="The fate; OUTSTANDING: changes without a fate")] = None
    priority_class: PriorityClass | None = None
    event_type: Annotated[Name | None, Query()] = None
    property_id: Annotated[Id | None, Query(description="Only changes of this property's units")] = None
    answer: Annotated[
        str | None,
        Query(min_length=1, max_length=ANSWER_LENGTH_MAX, description="Part of OldHost's reason for a rejection"),
    ] = None
    accepted_from: Annotated[Moment | None, Query(description="Accepted at this time or later")] = None
    accepted_before: Annotated[Moment | None, Query(description="Accepted before this time")] = None
    waited_s: Annotated[
        float | None,
        Field(ge=0, le=WAITED_S_MAX),
        DECIMAL,
        Query(description="Took longer than this to get a fate, or has waited longer without one"),
    ] = None

    def filter(self) -> ChangeFilter:
        """An entity id without a type is taken as a unit's id."""
        values = dict(vars(self))
        if self.entity_id is not None and self.entity_type is None:
            values["entity_type"] = "unit"
        return ChangeFilter(**values)
