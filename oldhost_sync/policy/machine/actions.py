"""What the machine decides: values that the workflow, the planner or the simulation act on."""

# Annotations are values here, not text; see workflows/messages.py.

from dataclasses import dataclass

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine.outstanding_changes import Part


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Take over the connection; `in_doubt`: the changes of which it is not known yet whether OldHost applied them.

    `newest`: id and acceptance time of the newest waiting change. A database that lost any changes lost this one first.
    """

    in_doubt: tuple[int, ...]
    newest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Send these changes in this order over the open session.

    `sequence` counts the session's sends from 1, urgent ones apart: the two in flight may reach the worker in any
    order, and are sent in this one. `label` is shown in Temporal's UI. `accepted_at_ms`: one for each change; the
    ledger compares it, to see that the id still means the same change. `urgent`: sent before all ordinary ones that
    are not on the wire.
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
    """End the sends under way after the operation that is on the wire; the session stays open."""

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
    """Read a page of outstanding changes, to find those that the machine does not have."""

    after_id: int


@dataclass(frozen=True, slots=True)
class LoadOutstanding:
    """Read a page of outstanding changes: emergencies (and their entities' older ones), the rest, or one `entity`'s."""

    part: Part
    after_id: int
    entity: EntityKey | None = None


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """Raise an alert, or `close` the one with this `dedupe_key`. `count`: how many changes it is about. `sequence`:
    grows with each.

    Alerts have this form everywhere, up to the activity that records them.
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
class RecordAlerts:
    """Record these alerts in this order; the next list waits until they are recorded."""

    alerts: tuple[RaiseAlert, ...]


@dataclass(frozen=True, slots=True)
class RecordHalt:
    """Write the halt into the ledger, so that it outlives the workflow.

    `never_taken`: the change whose first send OldHost called a replay; it must not count as applied. `epoch`: that of
    the session whose send showed it; 0: none.
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
    | RecordAlerts
    | RecordHalt
)
