"""The filters of a list of changes, as query parameters."""

# No `from __future__ import annotations` here: the framework needs a class's annotations as values, not as text.
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from oldhost_sync.api.field_types import DECIMAL, Id, Moment, Name
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.views.change_list import ChangeFilter

ANSWER_LENGTH_MAX = 200
# Ten years: retention is shorter.
WAITED_S_MAX = 315_360_000

Outcome = Literal["OUTSTANDING", "APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "REFUSED"]


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
