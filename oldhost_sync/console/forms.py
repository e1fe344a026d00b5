"""Forms as browsers post them: bounded, each field once, and read by the parsers that the API uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import ClientDisconnect, Request

from oldhost_sync.api.http_limits import LETTERS_AT_ONCE_MAX
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import (
    ANSWER_LENGTH_MAX,
    DECIMAL,
    WAITED_S_MAX,
    WHOLE,
    ChangeQuery,
    Id,
    Name,
    Outcome,
    ReasonedRequest,
    RecordedKey,
    RowId,
    checked,
)
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import HOST_LENGTH_MAX, PAYLOAD_BYTES_MAX, TEXT_LENGTH_MAX
from oldhost_sync.store.read.change_list import ChangeFilter

M = TypeVar("M", bound=BaseModel)

# A reason of 1,024 characters, each up to nine bytes when escaped, and a payload.
FORM_BYTES_MAX = 128 * 1024
FORM_FIELDS_MAX = 600
MEDIA_TYPE = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields in order; a name may occur more than once. Raises a Problem: 400, 413, 415."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != MEDIA_TYPE:
        raise _unreadable(415, f"The Content-Type is not {MEDIA_TYPE}.")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise _unreadable(413, f"It is larger than {FORM_BYTES_MAX} bytes.")
    except ClientDisconnect:
        raise _unreadable(400, "The connection ended before the form did.") from None
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        raise _unreadable(400, "It is not encoded as a form, or has too many fields.") from None


async def read_act(request: Request, model: type[M]) -> M:
    """An operator's form as `model`. Raises a Problem: 400, 413, 415, 422."""
    return checked(await read_fields(request, *model.model_fields), model, "form")


async def read_fields(request: Request, *names: str) -> dict[str, str]:
    """The form's fields, stripped; empty ones are left out. Raises a Problem for another or a repeated name."""
    fields = await read_form(request)
    given = [name for name, _ in fields]
    if len(set(given)) < len(given) or not set(given) <= set(names):
        raise _unreadable(400, f"Its fields are not {', '.join(names)}, each once.")
    return {name: value.strip() for name, value in fields if value.strip()}


def _unreadable(status: int, detail: str) -> Problem:
    return Problem(status, "bad-form", "The form can't be read", detail, "Go back, reload the page, and try again.")


# ------------------------------------------------------------ the fields of operators' forms, besides the reason


class KeyedAct(ReasonedRequest):
    """On the scheduled change with this key."""

    key: RecordedKey


class EntityAct(ReasonedRequest):
    """On one entity."""

    entity_type: Name
    entity_id: Id


class RuleAct(ReasonedRequest):
    """The class of an event type."""

    event_type: Name
    priority_class: PriorityClass


class CorrectionAct(ReasonedRequest):
    """A corrected payload, as JSON."""

    payload: str = Field(min_length=2, max_length=2 * PAYLOAD_BYTES_MAX)


class MarkedAct(ReasonedRequest):
    """On the dead letters that were marked."""

    change_ids: list[RowId] = Field(min_length=1, max_length=LETTERS_AT_ONCE_MAX)


class GroupAct(ReasonedRequest):
    """On a group of dead letters, up to the newest that was shown."""

    group: str = Field(min_length=1, max_length=TEXT_LENGTH_MAX)
    up_to: RowId


class HaltAct(ReasonedRequest):
    """On the halt that was shown: how to end it; the operator has typed the host's name."""

    mode: str = Field(pattern="^(resend|adopt)$")
    epoch: Annotated[int, Field(ge=0), WHOLE]
    host: str = Field(max_length=HOST_LENGTH_MAX)


# --------------------------------------------------------------------------------- the filters of the list of changes

# A form sends every field, most of them empty.
_FILLED = BeforeValidator(lambda value: value.strip() or None if isinstance(value, str) else value)
HOURS_MAX = WAITED_S_MAX / 3_600
Hours = Annotated[float | None, Field(ge=0, le=HOURS_MAX), DECIMAL, _FILLED, Query()]


@dataclass
class ChangeForm:
    """The filters of `GET /api/outbox`, with ages in hours instead of times."""

    entity_type: Annotated[Name | None, _FILLED, Query()] = None
    entity_id: Annotated[Id | None, _FILLED, Query()] = None
    outcome: Annotated[Outcome | None, _FILLED, Query()] = None
    priority_class: Annotated[PriorityClass | None, _FILLED, Query()] = None
    event_type: Annotated[Name | None, _FILLED, Query()] = None
    property_id: Annotated[Id | None, _FILLED, Query()] = None
    answer: Annotated[Annotated[str, Field(max_length=ANSWER_LENGTH_MAX)] | None, _FILLED, Query()] = None
    newer_hours: Hours = None
    older_hours: Hours = None
    waited_s: Annotated[float | None, Field(ge=0, le=WAITED_S_MAX), DECIMAL, _FILLED, Query()] = None

    def filter(self) -> ChangeFilter:
        values = dict(vars(self))
        newer, older, now = values.pop("newer_hours"), values.pop("older_hours"), datetime.now(UTC)
        values["accepted_from"] = None if newer is None else now - timedelta(hours=newer)
        values["accepted_before"] = None if older is None else now - timedelta(hours=older)
        return ChangeQuery(**values).filter()
