"""What the machine decides: values that the workflow, the planner or the simulation act on.

Each is, unchanged, the argument of the activity that carries it out, so it is in a run's history: ids only, and nothing
that the workflow can know otherwise. A field that a later release adds has a default.
"""

# Annotations are values here, not text; see workflows/messages.py.
from dataclasses import dataclass

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.rules.operator_act import OperatorAct


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

    `number` names it in its run. `sequence` counts the session's sends from 1, urgent ones apart: the two in flight may
    reach the worker in any order, and are sent in this one (0: at once). `accepted_at_ms`: one for each change; the
    ledger compares it, to see that the id still means the same change. `urgent`: sent before all ordinary ones that
    are not on the wire.
    """

    number: int
    sequence: int
    epoch: int
    change_ids: tuple[int, ...]
    accepted_at_ms: tuple[int, ...] = ()
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class StopSends:
    """End the sends under way after the operation that is on the wire; the session stays open."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    epoch: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Compare OldHost's expected nonce with the ledger's over the open session (trap 4: periodically)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Read a page of outstanding changes, in id order, to find those that the machine does not have."""

    after_id: int


@dataclass(frozen=True, slots=True)
class LoadOutstanding:
    """Read a page of outstanding changes, in id order: emergencies (and their entities' older ones), the rest, or one
    `entity`'s. None of these returns changes held behind a dead letter.
    """

    part: Part
    after_id: int
    entity: EntityKey | None = None


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """Raise an alert, or `close` the one with this `dedupe_key`. `count`: how many changes it is about. `sequence`:
    grows with each.
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


Action = OpenSession | Send | StopSends | CloseSession | Probe | Sweep | LoadOutstanding | RecordAlerts | OperatorAct
