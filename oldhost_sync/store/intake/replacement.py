"""A corrected copy of a dead letter: a new change under a new key, linked with the old one in the audit.

The copy is recorded first; afterwards the writer discards the dead letter. A failure in between leaves both, and the
same request again completes it. The copy is a new change: it is sent after the entity's changes that already wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_accepted
from oldhost_sync.store.intake.validation import accept, canonical_json
from oldhost_sync.store.outbox.pending_fates import JOIN_PENDING, fate_columns

REPLACE, CORRECT = "replace", "correct"

_LETTER = text(
    f"SELECT o.entity_type, o.entity_id, o.event_type, {fate_columns('outcome')} FROM outbox_events o "
    f"{JOIN_PENDING} WHERE o.host = :host AND o.id = :id"
)


@dataclass(frozen=True, slots=True)
class Correction:
    """An operator's corrected payload for the dead letter `change_id`. `key`: of the new change; None: derived from
    `change_id` and `payload`.
    """

    change_id: int
    payload: Mapping[str, Any]
    operator: Actor
    source: str
    reason: str
    key: str | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for the same correction, so that a repeated request records one copy."""
        if self.key is not None:
            return self.key
        digest = sha256(canonical_json("payload", self.payload).encode()).hexdigest()
        return f"corrected-{self.change_id}-{digest[:16]}"


class NoDeadLetter(Exception):  # noqa: N818 - a name says what happened
    """The change does not exist (`exists` False), or is not a dead letter: it has another fate, or none (`outcome`)."""

    def __init__(self, *, exists: bool, outcome: str | None) -> None:
        super().__init__("not a dead letter")
        self.exists = exists
        self.outcome = outcome


def record_correction(connection: Connection, host: str, correction: Correction) -> RecordedChange:
    """Record the copy and the two acts that link it. A repetition returns the first copy, even if the dead letter has
    another fate by then.

    Raises NoDeadLetter, InvalidChange, IdempotencyConflict; the caller's transaction must then be rolled back.
    """
    letter = connection.execute(_LETTER, {"host": host, "id": correction.change_id}).one_or_none()
    if letter is None:
        raise NoDeadLetter(exists=False, outcome=None)
    change = accept(
        host, letter.entity_type, letter.entity_id, letter.event_type, correction.payload,
        correction.idempotency_key, None, None, correction.source,
    )  # fmt: skip
    recorded = record_accepted(connection, change)
    if recorded.duplicate:
        return recorded
    if letter.outcome != "DEAD":
        raise NoDeadLetter(exists=True, outcome=letter.outcome)
    by, why = correction.operator, correction.reason
    old, new = correction.change_id, recorded.change_id
    record_act(
        connection, host=host, action=REPLACE, operator=by, reason=why, change_id=old,
        detail={"message": f"its corrected copy is change {new}", "replaced_by": new},
    )  # fmt: skip
    record_act(
        connection, host=host, action=CORRECT, operator=by, reason=why, change_id=new,
        detail={"message": f"a corrected copy of change {old}", "corrects": old},
    )  # fmt: skip
    return recorded
