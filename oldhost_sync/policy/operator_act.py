"""An operator's act: one value for the update, the database that records it, and the machine that follows it."""

# Annotations are values here, not text; see workflows/messages.py.
from dataclasses import dataclass, field

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey
from oldhost_sync.policy.wire_ref import WireRef, from_wire

# An operator's decisions about a dead letter: send it again, give it up, or (only if it is unsure) count it as applied.
# The first two also about a change that waits apart.
LETTER_ACTS = ("retry", "discard", "confirm")


@dataclass
class ActSignature:
    """The API's signature of an act (`act_signature.py`): `nonce` was never used before, `digest` is in hexadecimal."""

    nonce: str = ""
    signed_at_ms: int = 0
    digest: str = ""


@dataclass
class OperatorAct:
    """Input of `record_decision`: made durable before the machine follows it. `action`: pause, resume, flush, retry,
    discard, confirm, resolve, or the writer's own halt.

    `entity`: [entity_type, entity_id] of a flush; None: all. `unsettled`: what is in doubt at the writer when the halt
    is resolved. `decision_id` identifies the act, so that a later run that repeats it finds it done. `epoch`: that
    of the session whose send halts, or of the halt that the operator who resolves it was shown; 0: none. `channel`: how
    the act arrived, as its sender says; `signature` proves it, and the name.
    """

    host: str
    action: str
    operator: str
    reason: str
    change_id: int | None = None
    mode: str | None = None
    entity: list[str] | None = None
    decision_id: str = ""
    unsettled: list[int] = field(default_factory=list)
    epoch: int = 0
    channel: str = ""
    signature: ActSignature | None = None

    @property
    def entity_key(self) -> EntityKey | None:
        return EntityKey(*self.entity) if self.entity else None


@dataclass
class ActRecorded:
    """Result of `record_decision`: `ref`, the change that waits again (retry); `refused`, why nothing was done;
    `fates`, those of the `unsettled` changes, from the database; `halted`, the halt's text with what OldHost expects
    now; `epoch`, the one that a resolve began; `apart`: the change was no dead letter, it waited apart.
    """

    ref: WireRef | None = None
    entity: list[str] | None = None
    message: str = ""
    refused: str = ""
    fates: list[ChangeResult] = field(default_factory=list)
    halted: str = ""
    epoch: int = 0
    apart: bool = False

    @property
    def change(self) -> ChangeRef | None:
        """Raises ValueError if it is not a valid ref."""
        return from_wire(self.ref) if self.ref is not None else None

    @property
    def entity_key(self) -> EntityKey | None:
        return EntityKey(*self.entity) if self.entity else None
