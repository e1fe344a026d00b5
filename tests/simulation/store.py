"""A process's way to the database: delays, lost connections, lost COMMITs, deadlocks, an entity's
lock held for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import getcurrent
from sqlalchemy.sql.elements import ClauseElement

from oldhost_sync.driver_kit.memory_database import (
    Begin,
    MemoryDatabase,
    MemoryResult,
    PlainConnection,
    Savepoint,
    database_error,
)
from oldhost_sync.policy.limits import CONNECTION_READ_SECONDS_MAX
from oldhost_sync.store import transactions
from oldhost_sync.store.outbox.pending_fates import AT_ONCE
from tests.simulation.faults import Faults
from tests.simulation.hub import Hub, Process, Task

STALL_S = 3.0
CONNECTION_LOST, CANT_CONNECT, LOCK_WAIT, DEADLOCK = 2013, 2003, 1205, 1213
NO_SAVEPOINT = 1305


class Locks:
    """Entities whose shadow row an unfinished transaction holds."""

    def __init__(self) -> None:
        self._held: dict[str, Process] = {}
        self._waiting: list[Callable[[Any], None]] = []

    def holder(self, entity_id: str) -> Process | None:
        return self._held.get(entity_id)

    def take(self, entity_id: str, process: Process) -> None:
        while self.holder(entity_id) is not None:
            process.hub.park(1.0, self._waiting.append)
        self._held[entity_id] = process

    def give_back(self, entity_id: str) -> None:
        self._held.pop(entity_id, None)
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(True)

    def forget(self, process: Process) -> None:
        """Its connections are gone: the server has rolled its transactions back."""
        for entity_id in [one for one, holder in self._held.items() if holder is process]:
            self.give_back(entity_id)


class Weather:
    """How the database is: `down`, or slow by `delay_s` a round trip."""

    def __init__(self) -> None:
        self.down = False
        self.delay_s = 0.001


class Engine:
    """One process's engine. `slow_commit_s`: how long a recording stays open after its INSERT."""

    def __init__(
        self, hub: Hub, database: MemoryDatabase, process: Process, faults: Faults, weather: Weather, locks: Locks
    ) -> None:
        self.hub = hub
        self.database = database
        self.process = process
        self.faults = faults
        self.weather = weather
        self.locks = locks
        self.at_deadlock: Callable[[], None] = lambda: None
        self.at_unknown_commit: Callable[[], None] = lambda: None
        process.at_death.append(lambda: locks.forget(process))

    def connect(self) -> Connection:
        return Connection(self)

    def recording(self, entity_id: str, open_s: float) -> RecordingEngine:
        return RecordingEngine(self, entity_id, open_s)


class Connection(PlainConnection):
    def __init__(self, engine: Engine, begin: Begin | None = None, entity_id: str = "") -> None:
        super().__init__(engine.database, begin)
        self._engine = engine
        self._entity_id = entity_id
        self._lost_after = False

    def __exit__(self, *_: object) -> None:
        self.rollback()
        if self._entity_id and self._engine.process.alive:
            self._engine.locks.give_back(self._entity_id)

    def before_statement(self, statement: str) -> None:
        engine = self._engine
        engine.process.check()
        if not self._begun:
            self._reach()
            super().before_statement(statement)
        mode = engine.faults.at("statement", engine.process, statement[:40])
        self._lost_after = mode == "after"
        if mode and not self._lost_after:
            self._fail(mode)

    def execute(self, statement: ClauseElement, values: dict[str, Any] | None = None) -> MemoryResult:
        return self._answered(super().execute(statement, values))

    def _answered(self, result: MemoryResult) -> MemoryResult:
        if self._lost_after:
            self._fail("before")
        return result

    def exec_driver_sql(self, statement: str, values: Sequence[Any] = ()) -> MemoryResult:
        if statement.startswith(("INSERT INTO units (", "INSERT INTO entities (")) and not self._entity_id:
            entity_id = values[2] if statement.startswith("INSERT INTO entities") else values[1]
            if self._engine.locks.holder(str(entity_id)) is not None:
                self.before_statement(statement)
                self.rollback()
                raise database_error(LOCK_WAIT, "lock wait timeout")
        if statement.startswith("ROLLBACK TO SAVEPOINT") and not self._begun:
            raise database_error(NO_SAVEPOINT, "the savepoint went with its transaction")
        # How long a row is waited for: here, no wait is simulated.
        if statement.startswith(("SET SESSION ", "SELECT @@SESSION.")):
            return self.database.run("SELECT 1", ())
        if statement.startswith(AT_ONCE) and self._is_locked():
            raise database_error(LOCK_WAIT, "lock wait timeout")  # the statement is undone, its transaction goes on
        return self._answered(super().exec_driver_sql(statement, values))

    def _is_locked(self) -> bool:
        return self._engine.faults.at("row", self._engine.process) == "locked"

    def begin_nested(self) -> Savepoint:
        if not self._begun:
            self._reach()
            PlainConnection.before_statement(self, "")
        return Savepoint(self.database)

    def _reach(self) -> None:
        engine = self._engine
        if engine.weather.down:
            engine.hub.sleep(0.05)
            raise database_error(CANT_CONNECT, "can't connect")
        late_s, engine.process.late_s = engine.process.late_s, 0.0
        engine.hub.sleep(engine.weather.delay_s * (0.5 + engine.hub.random.random()) + late_s)
        if engine.weather.down:
            raise database_error(CONNECTION_LOST, "connection lost")

    def _fail(self, mode: str) -> None:
        self.rollback()
        engine = self._engine
        if mode == "deadlock":
            engine.at_deadlock()
            raise database_error(DEADLOCK, "deadlock")
        self.invalidated = True
        if mode.startswith("die"):
            engine.process.kill()
            engine.process.check()
        if mode == "hang":
            engine.hub.sleep(CONNECTION_READ_SECONDS_MAX)
        raise database_error(CONNECTION_LOST, "connection lost")

    def commit(self) -> None:
        if not self._begun:
            return
        engine = self._engine
        engine.process.check()
        mode = engine.faults.at("commit", engine.process)
        if mode == "stall":  # all is well, but the process is not run for a while
            super().commit()
            engine.hub.sleep(STALL_S)
            return
        if mode in {"after", "hang", "die-after"}:
            super().commit()
        if mode:
            engine.at_unknown_commit()
            self._fail(mode)
        super().commit()
        engine.hub.sleep(engine.weather.delay_s * (0.5 + engine.hub.random.random()))


class RecordingEngine:
    """For one recording: its INSERT takes place, and gets its id, some time before its COMMIT."""

    def __init__(self, engine: Engine, entity_id: str, open_s: float) -> None:
        self._engine = engine
        self._entity_id = entity_id
        self._open_s = open_s

    def connect(self) -> Connection:
        engine = self._engine
        engine.locks.take(self._entity_id, engine.process)
        begin = Begin(engine.database.now_us(), engine.database.next_id())
        try:
            engine.hub.sleep(self._open_s)
        except BaseException:
            if engine.process.alive:
                engine.locks.give_back(self._entity_id)
            raise
        return Connection(engine, begin, self._entity_id)


def _pause(seconds: float) -> None:
    task = getcurrent()
    if isinstance(task, Task):
        task.process.hub.sleep(seconds)
    else:
        time.sleep(seconds)


def _chance() -> float:
    task = getcurrent()
    return task.process.hub.random.random() if isinstance(task, Task) else random.random()


def install() -> Callable[[], None]:
    """Let the product's `run_in_transaction` pause in virtual time where it runs in it."""
    defaults = transactions.run_in_transaction.__kwdefaults__
    assert defaults is not None
    before = dict(defaults)
    defaults.update(pause=_pause, chance=_chance)
    return lambda: defaults.update(before)
