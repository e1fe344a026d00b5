"""A writer that only listens: it keeps what it was signalled, and may be told to fail before or after taking it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.engine import create_engine

WAIT_SECONDS_MAX = 60.0


class Listener:
    """`batches` holds the ids of each acknowledged or taken signal. `failing`: "", "before" or "after" taking it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failing = ""
        self.arrived = asyncio.Event()

    async def __call__(self, refs: list[ChangeRef]) -> None:
        if self.failing == "before":
            raise ConnectionError("no Temporal")
        self.batches.append([ref.change_id for ref in refs])
        self.arrived.set()
        if self.failing == "after":
            raise TimeoutError("the acknowledgement was lost")

    @property
    def ids(self) -> list[int]:
        return [change_id for batch in self.batches for change_id in batch]


def lease_holder(connection: Connection) -> str | None:
    """Who relays now, if anybody."""
    holder: str | None = connection.exec_driver_sql(
        "SELECT owner FROM relay_lease WHERE expires_at > UTC_TIMESTAMP(6)"
    ).scalar()
    return holder


@contextmanager
def looking(engine: Engine) -> Iterator[Engine]:
    """As a relay's process looks: without a transaction, on connections of its own."""
    looks = create_engine(engine.url.render_as_string(hide_password=False), autocommit=True)
    yield looks
    looks.dispose()


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


async def until(true: Callable[[], bool], what: str) -> None:
    """Let the loop run until `true`, with a deadline."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"waited too long for: {what}"
        await asyncio.sleep(0.01)


async def keep(engine: Engine, conditions: Conditions, now: float = 0.0) -> None:
    """Write what was reported so far."""
    await ConditionKeeper(Transactions(engine), conditions).run_once(now)
