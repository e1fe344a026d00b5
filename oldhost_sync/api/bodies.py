"""Reading a request's body: bounded in size, strict JSON, and valid for the route's model.

Strict: UTF-8, no NaN or Infinity, no lone surrogates, no duplicate names in an object, no number beyond 64 bit, no
nesting deeper than any payload may have. The database, OldHost and browsers would read anything else differently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from oldhost_sync.api import limits
from oldhost_sync.api.keys import KEY_PARAMETER
from oldhost_sync.api.problems import Problem, fields_invalid

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, model: type[M]) -> M:
    """The body as `model`. Raises a Problem: 400 not JSON, 413 too large, 415 wrong media type, 422 a wrong field."""
    return parse_body(await read_bytes(request, limits.REQUEST_BODY_BYTES_MAX), model)


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
    """Raises a Problem, 400. Depth and numbers are not checked yet."""
    try:
        value = from_json(body, allow_inf_nan=False)
        json.loads(body, object_pairs_hook=_without_duplicates)
    except _DuplicateNameError:
        detail = "A name occurs twice in one object: different programs would use different values."
        raise Problem(
            400, "duplicate-name", "A name occurs twice", detail, "Send each name only once in an object."
        ) from None
    except ValueError as error:
        # The parser's text names the place and the kind of mistake, not the content.
        raise Problem(
            400,
            "not-json",
            "The body is not JSON",
            f"{error}.",
            "Send one JSON object in UTF-8, without NaN or Infinity.",
        ) from None
    return value


class _DuplicateNameError(Exception):
    """Not a ValueError, because the parser raises those."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({name for name, _ in pairs}) < len(pairs):
        raise _DuplicateNameError


def checked(value: Any, model: type[M], place: str) -> M:
    """`value` as `model`. Raises a Problem, 422; its field names begin with `place`."""
    _check(value, limits.REQUEST_JSON_DEPTH_MAX)
    return shaped(value, model, place)


def shaped(value: Any, model: type[M], place: str) -> M:
    """Like `checked`, but without the checks of depth and numbers: parts of type `Any` are not checked."""
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


def _check(value: Any, levels: int) -> None:
    if isinstance(value, Mapping | list):
        if not levels:
            raise Problem(
                422,
                "too-deep",
                "The body nests too deeply",
                f"At most {limits.REQUEST_JSON_DEPTH_MAX} levels are accepted.",
                "Flatten the payload.",
            )
        for item in value.values() if isinstance(value, Mapping) else value:
            _check(item, levels - 1)
    elif isinstance(value, int | float) and not _fits(value):
        raise Problem(
            422,
            "number-too-large",
            "A number is too large",
            "Whole numbers must fit 64 bit, others a double.",
            "Send larger numbers as text.",
        )


def _fits(value: float) -> bool:
    return limits.INTEGER_MIN <= value <= limits.INTEGER_MAX if isinstance(value, int) else math.isfinite(value)


def write_body(model: type[BaseModel], **examples: Mapping[str, Any]) -> dict[str, Any]:
    """Like `json_body`, for a route that records something: it takes an idempotency key and answers 202."""
    return {"status_code": HTTPStatus.ACCEPTED, "parameters": [KEY_PARAMETER], **json_body(model, **examples)}


def json_body(model: type[BaseModel], **examples: Mapping[str, Any]) -> dict[str, Any]:
    """The request body's part of the OpenAPI document; the routes read their bodies themselves."""
    named = {name.replace("_", " "): {"value": dict(value)} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
