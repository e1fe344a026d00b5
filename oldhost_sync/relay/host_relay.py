"""One host's duties put together: they share the lease; each has its own loop and database connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.engine import Engine

from oldhost_sync.relay.duty import DutyLoop
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.pruner import Pruner
from oldhost_sync.relay.relay import Condition, Relay, Signal
from oldhost_sync.relay.scheduler import Scheduler
from oldhost_sync.relay.shared_poll import SharedPoll
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.telemetry import RelayMetrics

RELAY_THREADS, SCHEDULE_THREADS, PRUNE_THREADS, WATCH_THREADS, PROMISE_THREADS, FATE_THREADS = 4, 2, 1, 1, 1, 1
# One for each thread: no duty waits for another's connection.
CONNECTIONS = RELAY_THREADS + SCHEDULE_THREADS + PRUNE_THREADS + WATCH_THREADS + PROMISE_THREADS + FATE_THREADS


@dataclass(frozen=True, slots=True)
class RelayTransactions:
    """What the relays of all hosts of a process share, by kind of duty."""

    relaying: Transactions
    scheduling: Transactions
    pruning: Transactions
    watching: Transactions
    promises: Transactions
    fates: Transactions

    @classmethod
    def of(cls, engine: Engine) -> RelayTransactions:
        """`engine` must have CONNECTIONS connections."""
        return cls(
            Transactions(engine, RELAY_THREADS, "relay"),
            Transactions(engine, SCHEDULE_THREADS, "schedule"),
            Transactions(engine, PRUNE_THREADS, "prune"),
            Transactions(engine, WATCH_THREADS, "watch"),
            Transactions(engine, PROMISE_THREADS, "promise"),
            Transactions(engine, FATE_THREADS, "fates"),
        )


class HostRelay:
    """Relays, schedules and prunes for one host. `owner` names this process in the lease."""

    def __init__(
        self,
        transactions: RelayTransactions,
        signal: Signal,
        host: str,
        *,
        owner: str,
        poll: SharedPoll | None = None,
        pace: RelayPace | None = None,
        metrics: RelayMetrics | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        pace = pace or RelayPace()
        self.leadership = Leadership(transactions.relaying, host, owner, pace.lease_s)
        self.relay = Relay(
            transactions.relaying,
            signal,
            host,
            owner=owner,
            leadership=self.leadership,
            poll=poll,
            pace=pace,
            metrics=metrics,
            monotonic=monotonic,
        )
        duties = (
            Scheduler(transactions.scheduling, self.leadership, pace, metrics),
            Pruner(transactions.pruning, self.leadership, pace, metrics),
        )
        self.loops = [
            DutyLoop(duty, monotonic=monotonic, metrics=metrics, outage_known=self.knows_of_outage) for duty in duties
        ]

    @property
    def condition(self) -> Condition:
        return self.relay.condition

    async def run(self, stop: asyncio.Event) -> None:
        """The host's duties until `stop` is set, through every outage; then give the lease up."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.relay.repeat(stop))
            for loop in self.loops:
                loops.create_task(loop.run(stop))
        await self.relay.release()

    def knows_of_outage(self) -> bool:
        """Whether the relay has logged that the database is away."""
        return self.relay.condition is Condition.DATABASE_AWAY
