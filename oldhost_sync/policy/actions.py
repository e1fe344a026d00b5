"""What the machine decides: values that somebody else acts on (the workflow, the planner, the simulation)."""

# Annotations are values here, not text; see workflows/messages.py.

from dataclasses import dataclass

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.rebuild import Part


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Take over the connection; `in_doubt` are the changes whose operation ended without our learning how.

    `newest`: id and acceptance of the newest change that waits: the first that a database loses which loses any.
    """

    in_doubt: tuple[int, ...]
    newest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Send these changes in this order over the open session.

    `sequence` counts the session's sends from 1: the two in flight reach the worker in any order and go in this one.
    `label` is for people, in Temporal's UI. `accepted_at_ms`: of each, by which the ledger tells whether it is still
    the change that was meant. `urgent`: before all that is not on the wire; it has no `sequence`.
    """

    number: int
    sequence: int
    epoch: int
    task_queue: str
    change_ids: tuple[int, ...]
    label: str
    accepted_at_ms: tuple[int, ...] = ()
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class StopSends:
    """Let the sends that are under way end with the operation on the wire; the session stays open."""

    epoch: int
    task_queue: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    epoch: int
    task_queue: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Compare OldHost's expected nonce with the ledger's over the open session (trap 4: periodically)."""

    epoch: int
    task_queue: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """Read a page of outstanding changes and give back those the machine does not hold."""

    after_id: int


@dataclass(frozen=True, slots=True)
class LoadOutstanding:
    """Read a page of outstanding changes: emergencies (with what goes before them), the rest, or one `entity`'s."""

    part: Part
    after_id: int
    entity: EntityKey | None = None


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """Tell people (or `close` what they were told of under this `dedupe_key`). `count`: of what; `sequence`: a later
    one is larger.

    The one shape of an alert, up to the activity that records it.
    """

    kind: str
    severity: str
    message: str
    dedupe_key: str
    change_id: int | None = None
    close: bool = False
    count: int = 1
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class TellPeople:
    """Record these alerts in this order; the next list waits until they are."""

    alerts: tuple[RaiseAlert, ...]


@dataclass(frozen=True, slots=True)
class RecordHalt:
    """Write the halt into the ledger, so that it outlives the workflow.

    `never_taken`: the change whose first send OldHost called a replay, so that nobody takes it for applied. `epoch`: of
    the session whose send showed it; 0: of none.
    """

    reason: str
    never_taken: int | None = None
    epoch: int = 0


Action = (
    OpenSession
    | Send
    | StopSends
    | CloseSession
    | Probe
    | Sweep
    | LoadOutstanding
    | RaiseAlert
    | TellPeople
    | RecordHalt
)
