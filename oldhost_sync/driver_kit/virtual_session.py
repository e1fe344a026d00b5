"""The product's own session, recovery and ledger on a virtual host, up to the end of some changes.

The connection, the recovery path, the session and the ledger's SQL are those of a worker. Only the clock, the socket
and the database (`memory_database.py`) are others, and the writer's part is the loop here: open a session, send what
has no fate, wait as told, start again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from unittest.mock import patch

from sqlalchemy.engine import Engine

from oldhost_sync.driver_kit.memory_database import MemoryDatabase, PlainEngine
from oldhost_sync.driver_kit.virtual_host import (
    Killed,
    NetworkFault,
    VirtualClock,
    VirtualHost,
    VirtualNetwork,
    VirtualProcess,
    VirtualSocket,
)
from oldhost_sync.drivers.contract import Driver, Peer
from oldhost_sync.drivers.mapping import ANY, HostMapping, Output
from oldhost_sync.oldhost import connection
from oldhost_sync.oldhost.connection import AnswerLimit, OldHostConnection
from oldhost_sync.oldhost.ledger import Ledger
from oldhost_sync.oldhost.recovery import Opened, Opening
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.changes import BOUND, WAITING, Outcome
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.reconciliation import MachineClock
from oldhost_sync.store.mappings import install_mappings
from oldhost_sync.store.outbox.outstanding_changes import mark_relayed
from oldhost_sync.store.schema_migration import DEFAULT_HOST

KEYS = ("k0", "k1", "k2")
LIMITS = SessionLimits()
# Far more than any fault of one request needs.
LIVES_MAX = 5
OPENINGS_MAX = 60
# Short, as some hosts take little: {"idempotency_key":"k0"}.
MAPPING = HostMapping("driver-kit", "1", {ANY: (Output(("idempotency_key",), "/idempotency_key"),)})


@dataclass(frozen=True, slots=True)
class Rested:
    """How a run ended. `halted`: why, for operators; empty: it is not. `outcomes`: of the changes, None: none yet.
    `unproven`: how many of these no answer proves. `bodies`: what had to be done. `steps`: of the first process;
    `requests`: all.
    """

    halted: str
    outcomes: tuple[Outcome | None, ...]
    unproven: int
    bodies: tuple[bytes, ...]
    done: tuple[bytes, ...]
    steps: int
    requests: int


class VirtualRun:
    """One run: some changes, one fault or one kill, and what follows until all is at rest."""

    def __init__(
        self, driver: Driver, peer: Peer, model: VirtualHost, fault: NetworkFault = NetworkFault.NONE, faulty: int = 0
    ) -> None:
        self._driver, self._peer = driver, peer
        self._clock = VirtualClock()
        self._network = VirtualNetwork(model, self._clock, fault, faulty)
        self._engine = cast("Engine", PlainEngine(MemoryDatabase(self._clock)))
        self._ledger = MariaLedger(
            self._engine, DEFAULT_HOST, timedelta(seconds=LIMITS.settle_seconds), MachineClock(self._clock, "kit")
        )
        self._changes = self._recorded()

    def rest(self, kill_at: int = 0) -> Rested:
        """`kill_at`: the step at which the first process is killed; 0: none."""
        halted, first = "", VirtualProcess(kill_at)
        with patch.object(connection, "ready", _ready):
            for life in range(LIVES_MAX):
                try:
                    halted = self._live(first if life == 0 else VirtualProcess())
                except Killed:
                    continue
                break
        fates = self._ledger.fates(self._changes)
        return Rested(
            halted,
            tuple(None if _has_none(fate.outcome) else Outcome(fate.outcome) for fate in fates),
            sum(fate.unproven for fate in fates),
            tuple(b'{"idempotency_key":"%s"}' % key.encode() for key in KEYS),
            tuple(self._network.model.done),
            first.steps,
            self._network.requests,
        )

    def _recorded(self) -> list[int]:
        with self._engine.begin() as database:
            install_mappings(database, {DEFAULT_HOST: MAPPING})
            changes = []
            for key in KEYS:
                recorded = record_change(
                    database,
                    host=DEFAULT_HOST,
                    entity_type="unit",
                    entity_id=f"unit-{key}",
                    event_type="booking_created",
                    payload={},
                    idempotency_key=key,
                )
                assert recorded.change_id is not None
                changes.append(recorded.change_id)
            mark_relayed(database, changes)
        return changes

    def _live(self, process: VirtualProcess) -> str:
        """A worker, up to its end: why it is halted, or empty. Raises Killed."""
        opening = Opening(
            ledger=cast("Ledger", _Stepping(self._ledger, process)),
            connect=lambda: self._connect(process),
            owner="kit",
            condition=_Condition(self._clock),
            clock=self._clock,
            limits=LIMITS,
            heartbeat=process.step,
            capabilities=self._driver.capabilities,
        )
        why = ""
        for _ in range(OPENINGS_MAX):
            match opening.open():
                case OpeningHalted(halted):
                    return halted
                case OpeningPostponed(wait_ms, reason, message):
                    self._clock.advance(wait_ms / 1000)
                    why = f"{reason} {message}"
                case Opened(session=session):
                    waiting = [fate.change_id for fate in self._ledger.fates(self._changes) if _has_none(fate.outcome)]
                    why = session.send(waiting, process.step).reason
                    session.close("the send is over")
                    self._clock.advance(0.1)
                    if not any(_has_none(fate.outcome) for fate in self._ledger.fates(self._changes)):
                        return ""
        return f"it does not come to rest: {why}"

    def _connect(self, process: VirtualProcess) -> OldHostConnection:
        process.step()
        sock: Any = self._network.connect(process)
        return OldHostConnection(sock, self._clock, self._driver, self._peer, AnswerLimit())


class _Condition:
    """One thread: nobody else holds it, and waiting only passes the time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def __enter__(self) -> object:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> object:
        self._clock.advance(timeout or 0.0)
        return False

    def notify_all(self) -> None:
        """Nobody waits."""


class _Stepping:
    """A ledger with a step before and after each of its transactions."""

    def __init__(self, ledger: object, process: VirtualProcess) -> None:
        self._ledger = ledger
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., object]:
        transaction = getattr(self._ledger, name)

        def act(*arguments: object, **named: object) -> object:
            self._process.step()
            result = transaction(*arguments, **named)
            self._process.step()
            return result

        return act


def _has_none(outcome: object) -> bool:
    return outcome in {BOUND, WAITING}


def _ready(sock: VirtualSocket, seconds: float, *, writing: bool) -> bool:
    """In the place of `connection.ready`."""
    return writing or sock.wait_ready(seconds)
