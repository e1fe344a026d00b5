"""The filters of the list of changes, as a browser sends them: every field, most of them empty."""

# No `from __future__ import annotations`: FastAPI needs the annotations of a class as values, not as text.
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from oldhost_sync.api.fields import DECIMAL, Id, Name
from oldhost_sync.api.requests import ANSWER_LENGTH_MAX, WAITED_S_MAX
from oldhost_sync.policy.changes import PriorityClass

HOURS_MAX = WAITED_S_MAX / 3_600

Field_ = Annotated[str, Query(max_length=ANSWER_LENGTH_MAX)]
Hours = Annotated[float, Field(ge=0, le=HOURS_MAX), DECIMAL]


@dataclass
class ChangeForm:
    """Each field as text."""

    entity_type: Field_ = ""
    entity_id: Field_ = ""
    outcome: Field_ = ""
    priority_class: Field_ = ""
    event_type: Field_ = ""
    property_id: Field_ = ""
    answer: Field_ = ""
    newer_hours: Field_ = ""
    older_hours: Field_ = ""
    waited_s: Field_ = ""

    def given(self) -> dict[str, str]:
        """The fields that are filled in."""
        return {name: value.strip() for name, value in vars(self).items() if value.strip()}


class FilledForm(BaseModel):
    """The fields that are filled in, parsed."""

    entity_type: Name | None = None
    entity_id: Id | None = None
    outcome: (
        Literal["OUTSTANDING", "APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "REFUSED"] | None
    ) = None
    priority_class: PriorityClass | None = None
    event_type: Name | None = None
    property_id: Id | None = None
    answer: str | None = None
    newer_hours: Hours | None = None
    older_hours: Hours | None = None
    waited_s: Annotated[float, Field(ge=0, le=WAITED_S_MAX), DECIMAL] | None = None
