"""The duties of one host: they share the lease; each has its own loop and database connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay.duty import Duty, DutyLoop, RelayPace
from oldhost_sync.relay.leadership import Renewals, renewals
from oldhost_sync.relay.relay import OutboxWatch, Relay, RelayState, Signal
from oldhost_sync.relay.retention import Pruner, Settler
from oldhost_sync.relay.scheduler import Resyncer, Scheduler
from oldhost_sync.relay.transactions import SharedPoll, Transactions
from oldhost_sync.settlement.settlement_file import SettlementFolder
from oldhost_sync.telemetry import RelayMetrics
from oldhost_sync.traces.tracer import Tracer

# Threads for each kind of duty. "outbox" is the one whose statement waits in MariaDB; "settlement" may wait for the
# settlement folder.
THREADS = {
    "outbox": 1,
    "relay": 4,
    "schedule": 2,
    "prune": 1,
    "settlement": 1,
    "watch": 1,
    "promise": 1,
    "fates": 1,
    "figures": 1,
    "checks": 1,
    "load": 1,
    "alerts": 1,
}
# One for each thread, so that no duty waits for a connection.
CONNECTIONS = sum(THREADS.values())
# Each kind makes one look at a time for all hosts; six kinds look: outbox, schedule, watch, fates, prune (a resync),
# and traces if on.
LOOKS = 6


def relay_transactions(engine: Engine, autocommit_engine: Engine) -> dict[str, Transactions]:
    """The transactions that all relays of a process share, by kind of duty. `engine` must have CONNECTIONS connections,
    `autocommit_engine` LOOKS.
    """
    return {
        kind: Transactions(engine, threads, kind, autocommit_engine=autocommit_engine)
        for kind, threads in THREADS.items()
    }


@dataclass(frozen=True, slots=True)
class SharedPolls:
    """The polls that all relays of a process share: for unrelayed changes, due changes, and leases to renew."""

    outbox: OutboxWatch
    schedule: SharedPoll[frozenset[str]]
    renewals: Renewals

    @staticmethod
    def at(pace: RelayPace, transactions: Transactions, owner: str) -> SharedPolls:
        watch = OutboxWatch(transactions, owner, pace)
        return SharedPolls(watch, SharedPoll(pace.schedule_interval_s / 2), renewals(pace.lease_s))


@dataclass(eq=False)
class HostRelay:
    """Relays, schedules, prunes and settles for one host. `owner` names this process in the lease; `polls` are shared
    with the process's other hosts, if it has any; `settlement_dir`: None writes no settlement files; `conditions`: what
    is wrong is reported there.
    """

    transactions: Mapping[str, Transactions]
    signal: Signal
    host: str
    owner: str
    polls: SharedPolls | None = None
    pace: RelayPace = field(default_factory=RelayPace)
    metrics: RelayMetrics | None = None
    tracer: Tracer | None = None
    settlement_dir: Path | None = None
    conditions: Conditions = field(default_factory=Conditions)

    def __post_init__(self) -> None:
        own, pace, metrics = self.transactions, self.pace, self.metrics
        polls = self.polls or SharedPolls.at(pace, own["outbox"], self.owner)
        self.relay = Relay(
            *(own["relay"], self.signal, self.host, self.owner, polls.outbox, pace, metrics),
            renewals=polls.renewals,
            tracer=self.tracer,
        )
        self.leadership = self.relay.leadership
        folder = None if self.settlement_dir is None else SettlementFolder(self.settlement_dir, self.host)
        files = own["settlement"]
        duties: tuple[Duty, ...] = (
            Scheduler(own["schedule"], self.leadership, pace, metrics, polls.schedule),
            Pruner(own["prune"], self.leadership, pace, self.conditions, metrics, folder=folder, files=files),
            Resyncer(own["prune"], self.leadership),
            *([Settler(own["prune"], files, self.leadership, pace, folder, self.conditions)] if folder else []),
        )
        self.loops = [DutyLoop(duty, time.monotonic, metrics, self.knows_of_outage) for duty in duties]

    @property
    def condition(self) -> RelayState:
        return self.relay.condition

    async def run(self, stop: asyncio.Event) -> None:
        """Run the host's duties until `stop` is set, through every outage; then release the lease."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.relay.repeat(stop))
            for loop in self.loops:
                loops.create_task(loop.run(stop))
        await self.relay.release()

    def knows_of_outage(self) -> bool:
        """Whether the relay has logged that the database is away."""
        return self.relay.condition is RelayState.DATABASE_AWAY
