"""Reading a request's body: bounded in size, strict JSON (`oldhost_sync/fields/json_text.py`), and valid for the
route's model.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from oldhost_sync.api import limits
from oldhost_sync.api.keys import KEY_PARAMETER
from oldhost_sync.api.problems import Problem, field_invalid, fields_invalid
from oldhost_sync.fields.errors import InvalidField
from oldhost_sync.fields.json_text import DUPLICATE_NAME, NOT_JSON, check_json, read_json

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, model: type[M]) -> M:
    """The body as `model`. Raises a Problem: 400 not JSON, 413 too large, 415 wrong media type, 422 a wrong field."""
    return parse_body(await read_bytes(request, limits.REQUEST_BODY_BYTES_MAX), model)


async def read_value(request: Request) -> Any:
    """The body as a JSON value whose depth, texts and numbers are not checked yet. Raises a Problem, as `read_body`."""
    return parse_json(await read_bytes(request, limits.REQUEST_BODY_BYTES_MAX))


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
        check_json(place, value, limits.REQUEST_JSON_DEPTH_MAX)
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
