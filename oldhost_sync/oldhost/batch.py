"""A batch on its way through a session, and what is known of it so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.ledger import Answered, Reserved
from oldhost_sync.policy.changes import WAITING, ChangeRef, EntityKey, Fate
from oldhost_sync.policy.events import SendEnded
from oldhost_sync.policy.wire_ref import to_wire


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

    def ended(self, *, session_open: bool, reason: str) -> SendEnded:
        """What became of it: a change without a fate so far waits as before."""
        return SendEnded(
            [self.fates.get(change_id) or Fate(change_id, WAITING) for change_id in self.change_ids],
            session_open=session_open,
            service_ms=1000 * self.wire_seconds / self.exchanges if self.exchanges else 0.0,
            banned_ms=self.banned_ms,
            reason=reason,
            halted=self.halted,
            never_taken=self.never_taken,
            older=[to_wire(ref) for ref in self.older],
            held=[[*entity, dead] for entity, dead in self.held],
            refusal=self.refusal,
        )

    @property
    def nonces(self) -> list[int]:
        return [operation.nonce for operation in self.operations]
