"""Record a batch in as few transactions as possible; an entity that can't be recorded now does not delay the others.

The whole batch is tried in one transaction, which waits for no lock while it holds row locks itself. Entities whose row
another transaction has locked are left out of it and tried again until the time is up: each further transaction first
waits for one of them, in rotation and before it locks anything, and then takes those that are free. If a transaction
fails as a whole, by a conflict or by values that the database refuses, its entities are tried in halves, so that the
one at fault is found and the others are recorded. A change is reported as recorded only after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy import limits
from oldhost_sync.store.errors import (
    DatabaseUnavailable,
    InvalidChange,
    StoreError,
    TransactionContended,
    error_code,
    is_the_values_fault,
)
from oldhost_sync.store.intake.batch_recorder import ChangeBatch, Group, Item, LockWaits, Result, record_groups
from oldhost_sync.store.transactions import run_in_transaction


@dataclass(slots=True)
class _Submission:
    engine: Engine
    host: str
    waits: LockWaits = LockWaits.FOR_NEW
    results: dict[int, Result] = field(default_factory=dict)
    locked: list[Group] = field(default_factory=list)
    to_try: list[Sequence[Group]] = field(default_factory=list)

    def fail(self, groups: Sequence[Group], error: StoreError) -> None:
        self.results |= {index: error for group in groups for index, _ in group.items}


def submit_changes(
    engine: Engine,
    host: str,
    items: Sequence[Item],
    *,
    waits: LockWaits = LockWaits.FOR_NEW,
    come_back: bool = True,
    seconds_max: float = limits.BATCH_SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[Result]:
    """Record the items, all of an entity or none of them; one result for each, in their order.

    `waits`: for the first transaction. `come_back`: retry entities that other transactions have locked, for
    `seconds_max` in all; without it, or after that time, their result is TransactionContended. Other errors are raised
    if nothing is known to be recorded; else the results of the items concerned are DatabaseUnavailable, CommitUncertain
    or UnsuitableServer.
    """
    batch = ChangeBatch(items)
    work = _Submission(engine, host, waits, to_try=[batch.groups] if batch.groups else [])
    deadline = clock() + seconds_max
    left = seconds_max
    while work.to_try and left > 0:
        _try(work, work.to_try.pop(0))
        left = deadline - clock()
        if come_back and not work.to_try and work.locked and left > 0:
            pause(min(limits.TRANSACTION_PAUSE_SECONDS, left))
            # Each pass waits for a different group: the first one's row may stay locked for long.
            work.to_try, work.locked = [[*work.locked[1:], work.locked[0]]], []
            work.waits = LockWaits.FOR_FIRST
    late = [*work.locked, *(group for groups in work.to_try for group in groups)]
    work.fail(late, TransactionContended("other transactions hold a lock on the entity, or on a key of its changes"))
    return batch.results(work.results)


def _try(work: _Submission, groups: Sequence[Group]) -> None:
    """Run one transaction; after a conflict it is not repeated, but split into smaller ones."""
    record = partial(record_groups, host=work.host, groups=groups, waits=work.waits)
    work.waits = LockWaits.FOR_NOTHING
    try:
        attempt = run_in_transaction(work.engine, record, attempts=1)
    except TransactionContended:
        if not _halve(work, groups):
            work.locked += groups
    except (StoreError, DBAPIError) as error:
        if isinstance(error, DBAPIError) and is_the_values_fault(error):
            if not _halve(work, groups):
                why = f"payload can't be stored by the database (MariaDB {error_code(error)})"
                work.fail(groups, InvalidChange(why))
        elif not work.results:
            raise
        else:
            _give_up(work, groups, error)
    else:
        work.results |= attempt.results
        work.locked += attempt.locked


def _give_up(work: _Submission, groups: Sequence[Group], error: StoreError | DBAPIError) -> None:
    """Some changes are committed and must be reported so; the groups that are left were not tried, or not committed."""
    if isinstance(error, DBAPIError):
        error = DatabaseUnavailable(f"the database refused this transaction (MariaDB {error_code(error)})")
    rest = [group for waiting in work.to_try for group in waiting] + work.locked
    work.fail(groups, error)
    work.fail(rest, DatabaseUnavailable("the database failed before this was recorded"))
    work.to_try, work.locked = [], []


def _halve(work: _Submission, groups: Sequence[Group]) -> bool:
    """Queue the two halves as transactions of their own; False when there is only one group."""
    half = len(groups) // 2
    if half:
        work.to_try += [groups[:half], groups[half:]]
    return bool(half)
