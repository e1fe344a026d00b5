"""An operator's act: one value for the update, the database that records it, and the machine that follows it; who acts;
and the API's signature.

Any client of Temporal can send an act in any name, but not sign it. The signature is HMAC-SHA256 with a key that the
API and the workers share. It covers the whole act, the host, the channel, the time and a value used once, so it is
valid for no other act, host or time, and only once. The API makes it, and it is checked where the act is recorded; the
workflow only carries it.
"""

# Annotations are values here, not text; see workflows/messages.py.
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, WireRef, from_wire

# An operator's decisions about a dead letter: send it again, give it up, or (only if it is unsure) count it as applied.
# The first two also about a change that waits apart.
LETTER_ACTS = ("retry", "discard", "confirm")
# The writer's own: the end of a pause that has one. No update has this name; the audit calls it a resume.
END_PAUSE = "end-pause"


@dataclass
class ActSignature:
    """The API's signature of an act (`sign`): `nonce` was never used before, `digest` is in hexadecimal."""

    nonce: str = ""
    signed_at_ms: int = 0
    digest: str = ""


@dataclass
class OperatorAct:
    """An operator's act, or the writer's own, a halt or the end of a pause: argument of the update, and of
    `record_act`, which makes it durable before the machine follows it.

    The operator says `operator` and `reason`: who and why; `change_id` of a retry, discard or confirm; the entity of a
    flush (none: all); the `mode` of a resolve, and the `epoch` of the halt that was shown (of a halt: that of the
    session whose send halts; 0: not known), with adopt also the nonce that a host expects which can't be asked; of a
    pause `for_seconds` (0: until somebody resumes). `channel`: how the act arrived, as its sender says; `signature`
    proves it, and the name: only the API has one.

    The writer sets the rest, whatever the sender says. `action`: the update's name, or an act of the writer's own.
    `decision_id` identifies the act, so that a later run that repeats it finds it done. `in_doubt`: the changes in
    doubt at a resolve. `until_ms`: when the pause ends, in ms since 1970.
    """

    host: str = ""
    action: str = ""
    operator: str = ""
    reason: str = ""
    change_id: int | None = None
    mode: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    epoch: int = 0
    expected: int | None = None
    for_seconds: int = 0
    channel: str = ""
    signature: ActSignature | None = None
    decision_id: str = ""
    in_doubt: list[int] = field(default_factory=list)
    until_ms: int = 0

    @property
    def entity_key(self) -> EntityKey | None:
        return EntityKey(self.entity_type, self.entity_id) if self.entity_type and self.entity_id else None


@dataclass
class ActRecorded:
    """Result of `record_act`: `ref`, the change that waits again (retry); `refused`, why nothing was done;
    `fates`, those of the changes `in_doubt`, from the database; `halted`, the halt's text with what OldHost expects
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


class Channel(StrEnum):
    """How an act arrived. `command-line` and `temporal` are unproven: the sender says so, or nothing else is known."""

    API = "api"
    CONSOLE = "console"
    COMMAND_LINE = "command-line"
    TEMPORAL = "temporal"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and through which channel. `verified`: the API has checked the token of this name; None: it
    is not a person's name. `doubt`: why a name that arrived through Temporal is not verified.
    """

    name: str
    channel: Channel
    verified: bool | None
    doubt: str = ""


def at_the_terminal(name: str) -> Actor:
    """The actor of a typed command: anyone who may run commands can give any name."""
    return Actor(name, Channel.COMMAND_LINE, verified=False)


# Allows for clocks that differ, and for an act that waits while the database is down. An older one may be replayed.
VALID_MS = 10 * 60 * 1000
_SIGNED_CHANNELS = frozenset({Channel.API, Channel.CONSOLE})
_PURPOSE = "oldhost-sync operator's act 1"


def sign(act: OperatorAct, key: str, *, now_ms: int, nonce: str) -> ActSignature:
    """The signature of `act` with `key`; `nonce`: text that was never used before."""
    unsigned = ActSignature(nonce, now_ms)
    return ActSignature(nonce, now_ms, _digest(act, unsigned, key))


def actor_of(act: OperatorAct, keys: Sequence[str], *, now_ms: int) -> Actor:
    """Who acts, judged by the signature alone. Whether its nonce was used before, only the database can tell."""
    if act.action in ("halt", END_PAUSE):  # the writer's own: no update has these names
        return Actor(act.operator, Channel.WRITER, verified=None)
    doubt = _doubt(act, keys, now_ms)
    if not doubt:
        return Actor(act.operator, Channel(act.channel), verified=True)
    said = Channel.COMMAND_LINE if act.channel == Channel.COMMAND_LINE else Channel.TEMPORAL
    return Actor(act.operator, said, verified=False, doubt=doubt)


def _doubt(act: OperatorAct, keys: Sequence[str], now_ms: int) -> str:
    """Why the name is not verified; empty when it is."""
    signature = act.signature
    if signature is None or not signature.digest:
        return "not signed"
    if not keys:
        return "the worker has no key to check the signature (SYNC_ACT_KEYS)"
    given = signature.digest.encode(errors="backslashreplace")  # untrusted text
    fits = [hmac.compare_digest(_digest(act, signature, key).encode(), given) for key in keys]
    if not any(fits) or act.channel not in _SIGNED_CHANNELS:
        return "the signature does not fit"
    if abs(now_ms - signature.signed_at_ms) > VALID_MS:
        return f"signed more than {VALID_MS // 60_000} minutes ago, or the clocks differ"
    return ""


def _digest(act: OperatorAct, signature: ActSignature, key: str) -> str:
    bound = [
        *(_PURPOSE, act.channel, act.host, act.action, act.operator, act.reason),
        *(act.change_id, act.mode, act.entity_key, act.epoch, act.expected, act.for_seconds),
        *(signature.signed_at_ms, signature.nonce),
    ]
    return hmac.new(key.encode(), json.dumps(bound).encode(), hashlib.sha256).hexdigest()
