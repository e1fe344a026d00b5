"""Bring a batch into the database, in as few transactions as can be: what can't be recorded now holds nothing else up.

The whole batch is tried in one transaction, which waits for nothing while it holds rows that others want. Entities
whose row somebody holds are left out of it and tried again until the time is up: such a transaction first waits for one
of them, in its turn and while it holds nothing, and then takes what is free. Where a transaction as a whole meets a
conflict, or values that the database refuses, its entities are tried in halves, so that the one at fault is found and
the others are recorded. What is answered as recorded is committed: results are taken over only after the commit.
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
    CommitUncertain,
    DatabaseUnavailable,
    InvalidChange,
    StoreError,
    TransactionContended,
)
from oldhost_sync.store.intake.batch_recorder import Waits, record_groups
from oldhost_sync.store.intake.change_batch import ChangeBatch, Group, Item, Result
from oldhost_sync.store.transactions import error_code, is_the_values_fault, run_in_transaction


@dataclass(slots=True)
class _Submission:
    engine: Engine
    host: str
    waits: Waits = Waits.FOR_NEW
    results: dict[int, Result] = field(default_factory=dict)
    held: list[Group] = field(default_factory=list)
    to_try: list[Sequence[Group]] = field(default_factory=list)

    def fail(self, groups: Sequence[Group], error: StoreError) -> None:
        self.results |= {index: error for group in groups for index, _ in group.items}


def submit_changes(
    engine: Engine,
    host: str,
    items: Sequence[Item],
    *,
    waits: Waits = Waits.FOR_NEW,
    come_back: bool = True,
    seconds_max: float = limits.BATCH_SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[Result]:
    """Record the items, each entity's all or none; one result for each, in their order.

    `waits`: of the first transaction. `come_back`, for `seconds_max` in all, to what others hold; else, or after that,
    it is TransactionContended. Raises
    DatabaseUnavailable or CommitUncertain where nothing at all is known to be recorded; else these are the results of
    the items that they concern.
    """
    batch = ChangeBatch(items)
    work = _Submission(engine, host, waits, to_try=[batch.groups] if batch.groups else [])
    deadline = clock() + seconds_max
    left = seconds_max
    while work.to_try and left > 0:
        _try(work, work.to_try.pop(0))
        left = deadline - clock()
        if come_back and not work.to_try and work.held and left > 0:
            pause(min(limits.TRANSACTION_PAUSE_SECONDS, left))
            # Each pass waits for another one: the first may be held for long.
            work.to_try, work.held = [[*work.held[1:], work.held[0]]], []
            work.waits = Waits.FOR_FIRST
    late = [*work.held, *(group for some in work.to_try for group in some)]
    work.fail(late, TransactionContended("others hold the entity, or a key of its changes"))
    return batch.results(work.results)


def _try(work: _Submission, groups: Sequence[Group]) -> None:
    """One transaction; after a conflict it is not repeated, but followed by smaller ones."""
    record = partial(record_groups, host=work.host, groups=groups, waits=work.waits)
    work.waits = Waits.FOR_NOTHING
    try:
        attempt = run_in_transaction(work.engine, record, attempts=1)
    except TransactionContended:
        if not _halve(work, groups):
            work.held += groups
    except (DatabaseUnavailable, CommitUncertain) as error:
        rest = [group for some in work.to_try for group in some] + work.held
        if not work.results:
            raise
        # The server is away: of the others nothing was tried, or nothing was kept.
        work.fail(groups, error)
        work.fail(rest, DatabaseUnavailable("it went away before this was recorded"))
        work.to_try, work.held = [], []
    except DBAPIError as error:
        if not is_the_values_fault(error):
            raise
        if not _halve(work, groups):
            work.fail(groups, InvalidChange(f"payload can't be stored by the database (MariaDB {error_code(error)})"))
    else:
        work.results |= attempt.results
        work.held += attempt.held


def _halve(work: _Submission, groups: Sequence[Group]) -> bool:
    """Try the halves by themselves; False when there is only one group."""
    half = len(groups) // 2
    if half:
        work.to_try += [groups[:half], groups[half:]]
    return bool(half)
