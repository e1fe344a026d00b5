"""What was recorded in a time that is over, and what became of it: what a plan replays. No payload is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import ChangeRef, Outcome, PriorityClass
from oldhost_sync.store.outbox.outstanding_changes import ITS_UNIT, REF_AND_PROPERTY, as_ref

# Ids that one statement looks at: some 30 ms where all are the host's.
IDS_PER_PAGE = 5_000
# Ids follow the clock but for a transaction that waited for a lock, and a clock that was set.
SKEW = timedelta(hours=1)

_ENDS = text("SELECT COALESCE(MIN(id), 0) AS first, COALESCE(MAX(id), -1) AS last FROM outbox_events")
_NEXT = text("SELECT id, created_at FROM outbox_events FORCE INDEX (PRIMARY) WHERE id >= :id ORDER BY id LIMIT 1")
_PAGE = text(
    f"SELECT {REF_AND_PROPERTY}, o.outcome, n.outcome AS replaced_by, "
    "TIMESTAMPDIFF(MICROSECOND, o.created_at, o.processed_at) DIV 1000 AS took_ms "
    f"FROM outbox_events o FORCE INDEX (PRIMARY) {ITS_UNIT} LEFT JOIN outbox_events n ON n.id = o.superseded_by "
    "WHERE o.id >= :first AND o.id < :end AND o.host = :host "
    "AND o.created_at >= :begin_at AND o.created_at < :end_at ORDER BY o.id"
)
# What OldHost was never told, whatever the debounce: a change that an operator or a newer state took back.
_NEVER_SENT = frozenset({Outcome.NO_OP, Outcome.STALE, Outcome.DISCARDED})


@dataclass(slots=True)
class RecordedTime:
    """One host's changes of a time, in id order, without those that no setting would have sent (`left_out`): whether
    OldHost has a state already can be told from payloads only. Times in ms.

    `operations`: how many OldHost applied, by class · `emergencies_ms`: how long each took · `oldest_ms`: the longest
    that a change took · `waiting`: how many have no fate yet.
    """

    changes: list[ChangeRef] = field(default_factory=list)
    left_out: int = 0
    operations: dict[PriorityClass, int] = field(default_factory=lambda: dict.fromkeys(PriorityClass, 0))
    emergencies_ms: list[int] = field(default_factory=list)
    oldest_ms: int = 0
    waiting: int = 0

    def add(self, ref: ChangeRef, outcome: str | None, replaced_by: str | None, took_ms: int | None) -> None:
        if outcome in _NEVER_SENT or replaced_by in _NEVER_SENT:
            self.left_out += 1
            return
        self.changes.append(ref)
        if outcome is None or took_ms is None:
            self.waiting += 1
        elif outcome in (Outcome.APPLIED, Outcome.SUPERSEDED):
            self.oldest_ms = max(self.oldest_ms, took_ms)
            if outcome == Outcome.APPLIED:
                self.operations[ref.priority_class] += 1
                if ref.priority_class is PriorityClass.EMERGENCY:
                    self.emergencies_ms.append(took_ms)


def id_range(connection: Connection, begin_at: datetime, end_at: datetime) -> range:
    """The ids among which all changes of that time are, and some before and after it."""
    ends = connection.execute(_ENDS).one()
    ids = range(ends.first, ends.last + 1)
    return range(_first_since(connection, begin_at - SKEW, ids), _first_since(connection, end_at + SKEW, ids))


def _first_since(connection: Connection, moment: datetime, ids: range) -> int:
    """The first id of that moment or later, by bisection: there is no index by time alone."""
    stored = moment.replace(tzinfo=None)
    low, high = ids.start, ids.stop
    while low < high:
        middle = (low + high) // 2
        found = connection.execute(_NEXT, {"id": middle}).one_or_none()
        if found is None or found.created_at >= stored:
            high = middle
        else:
            low = found.id + 1
    return low


def pages(ids: range) -> Iterator[range]:
    """Parts of `ids` that are read one by one: a long read view would keep MariaDB from tidying up."""
    for first in range(ids.start, ids.stop, IDS_PER_PAGE):
        yield range(first, min(first + IDS_PER_PAGE, ids.stop))


def read_page(
    connection: Connection, host: str, ids: range, begin_at: datetime, end_at: datetime, into: RecordedTime
) -> None:
    """Add the host's changes of that time with these ids. Times are in UTC."""
    values = {"host": host, "first": ids.start, "end": ids.stop}
    times = {"begin_at": begin_at.replace(tzinfo=None), "end_at": end_at.replace(tzinfo=None)}
    for *ref, outcome, replaced_by, took_ms in connection.execute(_PAGE, values | times):
        into.add(as_ref(ref), outcome, replaced_by, took_ms)
