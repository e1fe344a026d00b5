"""A batch on its way through a session, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.ledger import Answered, Reserved
from oldhost_sync.policy.changes import ChangeRef, EntityKey, Fate


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a batch: one fate per change id, and how the session stands after it.

    `refusal`: the kind of answer that ended the session ("banned", "ambiguous", …), if one did. `halted`: why the ledger
    was halted, if this batch found a reason to; `never_taken`: the change whose first send was called a replay.
    `older`: outstanding changes that must go before those refused here, oldest first; `held`: entities with dead letters.
    """

    fates: list[Fate]
    session_open: bool
    service_ms: float = 0.0
    banned_ms: int = 0
    reason: str = ""
    refusal: str = ""
    halted: str = ""
    never_taken: int | None = None
    older: list[ChangeRef] = field(default_factory=list)
    held: list[tuple[EntityKey, list[int]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Probed:
    """OldHost's expected nonce, 0 when it could not be asked."""

    session_open: bool
    expected_nonce: int = 0
    reason: str = ""


@dataclass(slots=True)
class Batch:
    """A batch on its way. `marked`: SENT since `marked_at`, not one byte written; `pending`: answered, not recorded."""

    change_ids: Sequence[int]
    beat: Heartbeat
    accepted_at_ms: Mapping[int, int] | None = None
    operations: list[Reserved] = field(default_factory=list)
    fates: dict[int, Fate] = field(default_factory=dict)
    marked: Reserved | None = None
    marked_at: float = 0.0
    pending: Answered | None = None
    wire_seconds: float = 0.0
    exchanges: int = 0
    banned_ms: int = 0
    refusal: str = ""
    halted: str = ""
    never_taken: int | None = None
    older: list[ChangeRef] = field(default_factory=list)
    held: list[tuple[EntityKey, list[int]]] = field(default_factory=list)

    @property
    def nonces(self) -> list[int]:
        return [operation.nonce for operation in self.operations]
