"""Everything that crosses Temporal's boundary: signals, updates, queries, activity inputs and results. What happened at
OldHost comes back as the machine's own events (`oldhost_sync/policy/events.py`).

Two rules. Ids only: no payload and no personal data (invariant I9); the one exception is a submitted change, which is
recorded at once and travels on as a ref. Tolerant: every field added later has a default, because a running workflow
and an older sender meet here; a change travels as a short list, because thousands share one signal.
"""

# Annotations are values here, not text: the SDK asks for the types of each dataclass that it decodes, and text would be
# compiled anew every time (a twentieth of a busy worker's time).
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from oldhost_sync.policy.actions import RaiseAlert
from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeRef, Fate
from oldhost_sync.policy.operator_act import ActRecorded, ActSignature, OperatorAct
from oldhost_sync.policy.wire_ref import (
    AT_MS_MAX,
    CHANGE_ID_MAX,
    WireRef,
    all_from_wire,
    beside,
    from_wire,
    properties_of,
    to_wire,
    why_unprintable,
)
from oldhost_sync.policy.writer_policy import WriterPolicy

__all__ = [  # of the policy, and part of what crosses the boundary
    "AT_MS_MAX",
    "BOUND",
    "CHANGE_ID_MAX",
    "HELD",
    "WAITING",
    "ActRecorded",
    "ActSignature",
    "Fate",
    "OperatorAct",
    "WireRef",
    "WriterPolicy",
    "all_from_wire",
    "beside",
    "from_wire",
    "properties_of",
    "to_wire",
    "why_unprintable",
]

TASK_QUEUE = "oldhost-sync"
WORKFLOW_TYPE = "SyncWriterWorkflow"
WORKFLOW_ID_PREFIX = "sync-writer:"
NIGHTLY_RESYNC_TYPE = "NightlyResyncWorkflow"


def workflow_id(host: str) -> str:
    """The fixed id that makes the writer of `host` a singleton."""
    return f"{WORKFLOW_ID_PREFIX}{host}"


def nightly_resync_id(host: str) -> str:
    """The id of a host's Schedule; what it starts has the time added to it."""
    return f"nightly-resync:{host}"


@dataclass
class NightlyResync:
    """Argument of `NightlyResyncWorkflow`, and input of its activity `request_nightly_resync`."""

    host: str


# ---------------------------------------------------------------------------------------------- starting the writer


@dataclass
class Submission:
    """What an application signalled, as it came (any JSON value), and a key for the retries of recording it.

    `only_class`: refuse the change unless the event type's rule gives it this class (`apply_now` takes EMERGENCY only).
    """

    change: Any
    fallback_key: str
    source: str = "signal"
    only_class: str = ""


@dataclass
class Alerts:
    """Input of `raise_alerts`: to be recorded in this order."""

    host: str
    items: list[RaiseAlert] = field(default_factory=list)


@dataclass
class WriterInput:
    """Argument of `SyncWriterWorkflow`; every field has a default, and there may be no argument at all.

    `host`: empty: from the workflow's id. `policy` None: the worker's settings. `snapshot` None: rebuild from MariaDB.
    `submissions`, `decisions`: what the run before had begun to record. `unrecorded`: its history, and perhaps those of
    the runs before it, hold signals that were not recorded.
    """

    host: str = ""
    policy: WriterPolicy | None = None
    snapshot: dict[str, Any] | None = None
    submissions: list[Submission] = field(default_factory=list)
    decisions: list[OperatorAct] = field(default_factory=list)
    unrecorded: bool = False


# --------------------------------------------------------------------------------------------------- signals, updates


@dataclass
class EnqueueBatch:
    """Signal `enqueue`: refs of recorded changes, in id order; `properties`: each one's, "" for none, or no list."""

    refs: list[WireRef] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, refs: Sequence[ChangeRef]) -> Self:
        """The signal that tells of these."""
        return cls([to_wire(ref) for ref in refs], properties_of(refs))


@dataclass
class OperatorRequest:
    """Argument of operators' updates. `change_id` for retry and discard, the entity for flush, `mode` for resolve.

    `channel`, `signature`: how the API says that it has checked the operator's token; others leave them out.
    """

    operator: str = ""
    reason: str = ""
    change_id: int | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    mode: str | None = None
    channel: str = ""
    signature: ActSignature | None = None

    def act(self, host: str, action: str, decision_id: str = "") -> OperatorAct:
        """The same as what is made durable."""
        entity = [self.entity_type, self.entity_id] if self.entity_type and self.entity_id else None
        return OperatorAct(
            host,
            action,
            self.operator,
            self.reason,
            self.change_id,
            self.mode,
            entity,
            decision_id=decision_id,
            channel=self.channel,
            signature=self.signature,
        )


class ResolveMode(StrEnum):
    """How an operator ends a halt: send the ledger's operations again, or take OldHost's count as the truth."""

    RESEND = "resend"
    ADOPT = "adopt"


@dataclass
class SubmitAnswer:
    """Answer of `submit`, after the change was recorded: `change_id` is 0 while one with a `not_before` waits for its
    time.

    `status`: PENDING, SCHEDULED, or the change's fate, for a repetition of one that has it.
    """

    idempotency_key: str
    change_id: int
    status: str


@dataclass
class ApplyNowAnswer:
    """Answer of `apply_now`: `nonce` is None while the change is accepted but not yet at OldHost (ask by the key).

    `status`: ACCEPTED or the change's fate. Only APPLIED says that OldHost has it: a rejection may use up a nonce, too.
    """

    idempotency_key: str
    change_id: int
    status: str
    nonce: int | None = None
    message: str = ""


# --------------------------------------------------------------------------------------------------------- activities


@dataclass
class OpenSession:
    """Input of `open_session`. `unsettled`: change ids whose operation ended without the workflow learning how.

    `newest`: [id, accepted_at_ms] of the newest change that waits, which must still be in the database.
    """

    host: str
    unsettled: list[int] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)


@dataclass
class SendRequest:
    """Input of `send`, on the session's own queue: change ids in the order to be sent.

    `sequence`: this is the session's first, second, … send; it reserves its nonces after the one before it (0: at
    once).
    `release`: what the writer's run understands; one begun before 0.2 (release 1) is told WAITING instead of HELD.
    `accepted_at_ms`: of each change, so that one whose id the database gave out again is noticed.
    `urgent`: goes before all that is not on the wire. `stops`: the sends under way end with the operation on the wire.
    """

    host: str
    epoch: int
    change_ids: list[int] = field(default_factory=list)
    sequence: int = 0
    release: int = 1
    accepted_at_ms: list[int] = field(default_factory=list)
    urgent: bool = False
    stops: bool = False


@dataclass
class SessionRef:
    """Input of `close_session` and `probe`."""

    host: str
    epoch: int


@dataclass
class OutstandingPage:
    """Input of `load_outstanding`: changes without a fate, after `after_id`, in id order.

    `quiet_ms`: only those relayed at least so long ago (the sweep leaves the ones on their way alone). `part`:
    "emergencies", with the older changes of their entities; "rest", all; "entity", all of `entity`; "sweep". None of
    these gives what is held behind a dead letter. Empty, from runs begun before 0.2: all relayed ones, and the dead
    letters.
    """

    host: str
    after_id: int = 0
    limit: int = 2000
    quiet_ms: int = 0
    part: str = ""
    entity: list[str] | None = None


@dataclass
class Outstanding:
    """Result of `load_outstanding`. With the first page comes what else a new writer must know: `held`, entities with a
    dead letter as [entity_type, entity_id, [change ids]] (runs begun before 0.2 only); `dead_letters`, how many there
    are; `paused` by whom and why; `ban_left_ms` of the last ban, negative when it is over; `policy`, the worker's
    settings, for a writer that was started without any. With the first page of a sweep: `paused`, and whether the books
    are `halted` (None: not told). With both, `lists_states`: whether the writer's search attributes are registered.
    `properties`: of the refs, as in `EnqueueBatch`.
    """

    refs: list[WireRef] = field(default_factory=list)
    held: list[list[Any]] = field(default_factory=list)
    last_id: int = 0
    more: bool = False
    paused: list[str] | None = None
    ban_left_ms: int | None = None
    policy: WriterPolicy | None = None
    dead_letters: int = 0
    halted: bool | None = None
    lists_states: bool | None = None
    properties: list[str] = field(default_factory=list)

    def changes(self) -> Iterator[ChangeRef]:
        """The refs, read."""
        return all_from_wire(self.refs, self.properties)


@dataclass
class Submissions:
    """Input of `record_submissions`: to be recorded in this order, each in its own transaction.

    `may_leave`: what can't be recorded now, because somebody holds its entity's row, is left for later, and with it
    what follows of that entity. `original_run_id`: of the run that asks, before any reset; another one than the
    activity's own run says that the run was reset, and that nobody can tell by the position alone which signal is
    which: all are left.
    """

    host: str
    items: list[Submission] = field(default_factory=list)
    may_leave: bool = False
    original_run_id: str = ""


@dataclass
class Recorded:
    """Result of `record_submissions`, one per item: `ref` None when it was refused; `refused` then says why.

    `processed`: an idempotent repetition of a change that has its fate already (`nonce`: the one that it used up,
    applied or rejected).
    `outcome`: PENDING, SCHEDULED, CANCELLED or its fate. `by_relay`: older changes of its entity are still on their
    way; the relay brings it after them. `left`: not recorded, to be asked again; `after_reset`: the run was reset, and
    what it holds is for `recover_submissions`. `properties`: the ref's, as in `EnqueueBatch`.
    """

    idempotency_key: str = ""
    change_id: int = 0
    ref: WireRef | None = None
    refused: str = ""
    processed: bool = False
    nonce: int | None = None
    by_relay: bool = False
    outcome: str = ""
    duplicate: bool = False
    left: bool = False
    after_reset: bool = False
    properties: list[str] = field(default_factory=list)

    def changes(self) -> Iterator[ChangeRef]:
        """The ref, read; none when it was refused."""
        return all_from_wire([] if self.ref is None else [self.ref], self.properties)


@dataclass
class Recovery:
    """Input of `recover_submissions`: the run that asks, and the one that it continues ("": none)."""

    host: str
    run_id: str
    original_run_id: str
    continued_run_id: str = ""
    began_at_ms: int = 0


@dataclass
class Recovered:
    """Result of `recover_submissions`: how many signals it has recorded; `gone`: runs whose history is deleted."""

    recorded: int = 0
    runs: int = 0
    gone: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Alert(RaiseAlert):
    """Input of `raise_alert`, of runs begun before 0.2."""

    host: str = ""
