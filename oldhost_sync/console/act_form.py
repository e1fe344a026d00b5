"""The fields of operators' forms, besides the reason."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from oldhost_sync.api.fields import WHOLE, Id, Name, RecordedKey, RowId
from oldhost_sync.api.limits import LETTERS_AT_ONCE_MAX
from oldhost_sync.api.schemas import ReasonedRequest
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import HOST_LENGTH_MAX, PAYLOAD_BYTES_MAX, TEXT_LENGTH_MAX


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
