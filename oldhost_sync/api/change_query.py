"""The filters of a list of changes, as query parameters."""

# Annotations are values here, not text: the framework reads those of a class as they are.
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AwareDatetime

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import EVENT_TYPE_LENGTH_MAX, ID_LENGTH_MAX, NAME_PATTERN
from oldhost_sync.store.views.change_list import ChangeFilter

ANSWER_LENGTH_MAX = 200
# Ten years: retention is shorter.
WAITED_S_MAX = 315_360_000

Name = Annotated[str | None, Query(pattern=f"^{NAME_PATTERN}$", max_length=EVENT_TYPE_LENGTH_MAX)]
Id = Annotated[str | None, Query(min_length=1, max_length=ID_LENGTH_MAX)]
Outcome = Literal["OUTSTANDING", "APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "REFUSED"]


@dataclass
class ChangeQuery:
    """Each parameter leaves only what it names."""

    entity_type: Name = None
    entity_id: Id = None
    outcome: Annotated[Outcome | None, Query(description="Its fate; OUTSTANDING: it has none yet")] = None
    priority_class: PriorityClass | None = None
    event_type: Name = None
    property_id: Annotated[Id, Query(description="Only changes of this property's units")] = None
    answer: Annotated[
        str | None,
        Query(min_length=1, max_length=ANSWER_LENGTH_MAX, description="A part of OldHost's reason for a rejection"),
    ] = None
    accepted_from: Annotated[AwareDatetime | None, Query(description="Accepted then or later")] = None
    accepted_before: Annotated[AwareDatetime | None, Query(description="Accepted before then")] = None
    waited_s: Annotated[
        float | None,
        Query(ge=0, le=WAITED_S_MAX, description="Took longer to get a fate, or has waited longer for one"),
    ] = None

    def filter(self) -> ChangeFilter:
        """An entity's id without a type is a unit's."""
        values = dict(vars(self))
        if self.entity_id is not None and self.entity_type is None:
            values["entity_type"] = "unit"
        return ChangeFilter(**values)
