"""What the machine decides: values that the workflow, the planner or the simulation act on.

Each is, unchanged, the argument of the activity that carries it out, so it is in a run's history: ids only, and nothing
that the workflow can know otherwise. A field that a later release adds has a default.
"""

# Annotations are values here, not text; see workflows/messages.py.
from dataclasses import dataclass

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.rules.alert_kinds import Kind
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
class WriterCondition:
    """What is the case, for people, in words (`why`). At most one alert of each `cause` is open. `count`: how many
    changes it is about.
    """

    kind: Kind
    why: str
    cause: str
    change_id: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class RecordConditions:
    """All that is the case now: after this, alerts about it are open, and the writer's others closed but for those of
    the `unknown` kinds. `events`: what happened since the last list; it is counted, and has no end. `sequence`: grows
    with each list, by which an older one that arrives later is ignored.
    """

    conditions: tuple[WriterCondition, ...] = ()
    unknown: tuple[str, ...] = ()
    events: tuple[WriterCondition, ...] = ()
    sequence: int = 0


Action = (
    OpenSession | Send | StopSends | CloseSession | Probe | Sweep | LoadOutstanding | RecordConditions | OperatorAct
)
