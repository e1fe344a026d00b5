"""What crosses Temporal's boundary beside the policy's own values. The machine's actions are arguments of activities,
what happened at OldHost comes back as its events (`oldhost_sync/policy/machine`, `actions.py` and `events.py`), and an
operator's act is the same value everywhere (`oldhost_sync/policy/rules/operator_act.py`).

Two rules. Ids only: no payload and no personal data (invariant I9); the one exception is a submitted change, which is
recorded at once and passed on as a ref. Tolerant: every field that a later release adds has a default, because a
running workflow may meet a sender of the release before. A change is sent as a short list, because thousands share one
signal.
"""

# No `from __future__ import annotations` here: the SDK resolves the types of each dataclass that it decodes, and would
# compile annotations that are text every time (a twentieth of a busy worker's time).
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from oldhost_sync.policy.changes import (
    AT_MS_MAX,
    BOUND,
    CHANGE_ID_MAX,
    HELD,
    WAITING,
    ChangeRef,
    ChangeResult,
    WireRef,
    from_wire,
    to_wire,
    why_unprintable,
)
from oldhost_sync.policy.rules.operator_act import ActRecorded, ActSignature, OperatorAct
from oldhost_sync.policy.tuning import WriterPolicy

__all__ = [  # defined in the policy, and part of what crosses the boundary
    "AT_MS_MAX",
    "BOUND",
    "CHANGE_ID_MAX",
    "HELD",
    "WAITING",
    "ActRecorded",
    "ActSignature",
    "ChangeResult",
    "OperatorAct",
    "WireRef",
    "WriterPolicy",
    "from_wire",
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


def host_of(workflow_id: str) -> str:
    """The host of the writer with this id. Raises ValueError if it is no writer's."""
    if not workflow_id.startswith(WORKFLOW_ID_PREFIX):
        raise ValueError(f"{workflow_id[:64]!r} is not the id of a writer")
    return workflow_id.removeprefix(WORKFLOW_ID_PREFIX)


def session_task_queue(worker: str) -> str:
    """The queue for the activities of this worker's sessions."""
    return f"{TASK_QUEUE}-session-{worker}"


def nightly_resync_id(host: str) -> str:
    """The id of a host's Schedule; Temporal adds the time to it for the workflows that it starts."""
    return f"nightly-resync:{host}"


@dataclass
class NightlyResync:
    """Argument of `NightlyResyncWorkflow`, and of its activity `request_nightly_resync`."""

    host: str


# ---------------------------------------------------------------------------------------------- starting the writer


@dataclass
class Submission:
    """What an application signalled, unchanged (any JSON value), and an idempotency key for retries of recording it.

    `only_class`: refuse the change unless the event type's rule gives it this class (`apply_now` takes EMERGENCY only).
    """

    change: Any
    fallback_key: str
    source: str = "signal"
    only_class: str = ""


@dataclass
class WriterInput:
    """Argument of `SyncWriterWorkflow`; every field has a default, and there may be no argument at all.

    `host` empty: taken from the workflow's id. `policy` None: the worker's settings. `snapshot` None: rebuild from
    MariaDB. `submissions`, `acts`: not yet recorded by the previous run. `unrecorded`: its history, and perhaps
    those of earlier runs, hold signals that were not recorded.
    """

    host: str = ""
    policy: WriterPolicy | None = None
    snapshot: dict[str, Any] | None = None
    submissions: list[Submission] = field(default_factory=list)
    acts: list[OperatorAct] = field(default_factory=list)
    unrecorded: bool = False


# --------------------------------------------------------------------------------------------------- signals, updates


@dataclass
class EnqueueBatch:
    """Signal `enqueue`: refs of recorded changes, in id order."""

    refs: list[WireRef] = field(default_factory=list)

    @classmethod
    def of(cls, refs: Sequence[ChangeRef]) -> Self:
        """The signal that carries these."""
        return cls([to_wire(ref) for ref in refs])


@dataclass
class WithdrawnBatch:
    """Signal `enqueue`, too: `withdrawn`, ids of changes that an operator has withdrawn; `refs`: the older states that
    wait in their place. If it is lost, the writer hears of it when it reserves one of them.
    """

    withdrawn: list[int] = field(default_factory=list)
    refs: list[WireRef] = field(default_factory=list)


class NoRoom(ValueError):  # noqa: N818 - says what happened
    """A validator's refusal: as many updates as may wait, wait. Its name is the failure's type at the client."""


class ResolveMode(StrEnum):
    """How an operator ends a halt: send the ledger's operations again, or accept OldHost's count as correct."""

    RESEND = "resend"
    ADOPT = "adopt"


@dataclass
class SubmitAnswer:
    """Answer of `submit`, after the change was recorded. `change_id` is 0 while a change waits for its `not_before`.

    `status`: WAITING, SCHEDULED, or the fate of a repeated change that already has one.
    """

    idempotency_key: str
    change_id: int
    status: str


@dataclass
class ApplyNowAnswer:
    """Answer of `apply_now`: `nonce` is None while the change is accepted but not yet at OldHost (ask by the key).

    `status`: WAITING or the change's fate. Only APPLIED means that OldHost has it: a rejection may use up a nonce,
    too. `unconfirmed`: APPLIED, and no answer of OldHost says so.
    """

    idempotency_key: str
    change_id: int
    status: str
    nonce: int | None = None
    message: str = ""
    unconfirmed: bool = False


# --------------------------------------------------------------------------------------------------------- activities


@dataclass
class Outstanding:
    """Result of `load_outstanding` and `sweep`: a page of changes without a fate, in id order.

    The first page of a rebuild also has what else a new writer needs: `dead_letters`, their number; `paused`, by whom,
    why and until when (0: until somebody resumes); `ban_left_ms` of the last ban, negative when it is over; `policy`,
    the worker's settings, for a writer that was started without any; `conditions_sequence`, the number of the writer's
    last list of conditions. The first page of a sweep has `paused`, and whether the ledger is `halted` (None: not
    known). Both have `lists_states`: whether the writer's search attributes are registered (None: not known).

    The list's items are checked by `changes`: were they annotated, the SDK would take 20 µs more for each.
    """

    refs: list[Any] = field(default_factory=list)
    last_id: int = 0
    more: bool = False
    paused: list[Any] | None = None
    ban_left_ms: int | None = None
    policy: WriterPolicy | None = None
    dead_letters: int = 0
    halted: bool | None = None
    lists_states: bool | None = None
    conditions_sequence: int = 0

    def changes(self) -> Iterator[ChangeRef]:
        """The decoded refs."""
        return (from_wire(ref) for ref in self.refs)


@dataclass
class Submissions:
    """Argument of `record_submissions`: to be recorded in this order, each in its own transaction.

    `may_leave`: a change whose entity's row is locked is left for later, with all following changes of that entity.
    `original_run_id`: of the calling run, before any reset. If it differs from the activity's own run, the run was
    reset, so a signal's position no longer identifies it, and all items are left.
    """

    items: list[Submission] = field(default_factory=list)
    may_leave: bool = False
    original_run_id: str = ""


@dataclass
class Recorded:
    """Result of `record_submissions`, one per item: `ref` None when it was refused; `refused` then says why.

    `processed`: an idempotent repetition of a change that already has its fate (`nonce`: the one that it used up,
    applied or rejected).
    `outcome`: WAITING, SCHEDULED, CANCELLED or its fate. `by_relay`: older changes of its entity are not relayed yet;
    the relay brings it after them. `left`: not recorded, to be tried again; `after_reset`: the run was reset, and
    `recover_submissions` records what it holds.
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

    def changes(self) -> list[ChangeRef]:
        """The decoded ref; none when the change was refused."""
        return [] if self.ref is None else [from_wire(self.ref)]


@dataclass
class Recovery:
    """Argument of `recover_submissions`: the calling run, and the one that it continues ("": none)."""

    run_id: str
    original_run_id: str
    continued_run_id: str = ""
    began_at_ms: int = 0


@dataclass
class Recovered:
    """Result of `recover_submissions`: the number of signals recorded; `gone`: runs whose history is deleted."""

    recorded: int = 0
    runs: int = 0
    gone: list[str] = field(default_factory=list)
