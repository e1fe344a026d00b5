"""What follows a fate: one that waits for a locked row is written, each gets its number, and traces end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Connection

from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.relay.duty import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.outbox.outstanding_changes import HostProgress, progress
from oldhost_sync.store.outbox.pending_fates import write_pending_fates
from oldhost_sync.store.read.change_feed import (
    TracedFate,
    before_news,
    hosts_with_work,
    number_fates,
    read_traced_fates,
)
from oldhost_sync.traces.change_spans import fate_spans
from oldhost_sync.traces.span import Span
from oldhost_sync.traces.tracer import Tracer


class FateWriter:
    """Writes the fates of `hosts` that wait for a locked row, and numbers those that have none (a duty, see `duty`).

    One poll a second for all hosts of the process. It needs no lease: two relays at once skip each other's rows.
    """

    name = "writing and numbering fates"
    host = "all hosts"
    pause_s = limits.RELAY_FATES_INTERVAL_SECONDS

    def __init__(self, transactions: Transactions, hosts: Collection[str]) -> None:
        self._transactions = transactions
        self._hosts = frozenset(hosts)

    async def run_once(self, _now: float) -> float:
        """Write a batch for each host that has any; after a full one the next follows soon."""
        full = False
        with HostFailures() as failures:
            for host in await self._transactions.poll(hosts_with_work):
                if host in self._hosts:
                    with failures.of(host):
                        full |= await self._write(host)
        return limits.RELAY_POLL_SECONDS if full else self.pause_s

    async def _write(self, host: str) -> bool:
        """Returns whether a batch was full, so that there may be more. A conflict is not retried: the next round is
        in a second, and the other hosts would wait.
        """
        batch, numbers = limits.RELAY_FATES_BATCH_ROWS, limits.RELAY_NUMBERED_ROWS
        run = partial(self._transactions.run, attempts=1)
        written = await run(lambda connection: write_pending_fates(connection, host, batch))
        numbered = await run(lambda connection: number_fates(connection, host, numbers))
        return written == batch or numbered == numbers


TRACED_EVERY_SECONDS = 1.0
# Transactions whose fates are read in one look; OldHost answers far fewer in that time.
TRACED_SEQUENCES_MAX = 500


@dataclass(eq=False)
class FateTracer:
    """Completes the traces of changes that have a fate, from the fates recorded in the database (a duty, see `duty`).

    A relay that starts or takes over looks back a minute, so that fates recorded before its first poll are traced, too.
    A fate that is traced twice has the same spans. `owner` names this process in the leases.
    """

    name = "tracing fates"
    host = "all hosts"
    pause_s = TRACED_EVERY_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    owner: str
    tracer: Tracer
    # By host, the number of the last fate that was traced.
    _seen: dict[str, int] = field(default_factory=dict)

    async def run_once(self, now: float) -> float:
        """The new fates of every host that this process is active for."""
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        self._seen = {host: seen for host, seen in self._seen.items() if host in active}
        if active:
            of_hosts = await self.transactions.poll(lambda connection: progress(connection, self.owner))
            with HostFailures() as failures:
                for host in active:
                    with failures.of(host):
                        await self._look(host, of_hosts.get(host, HostProgress()).fates)
        return TRACED_EVERY_SECONDS

    async def _look(self, host: str, newest: int) -> None:
        if host not in self._seen:
            self._seen[host] = await self.transactions.poll(
                lambda connection: before_news(connection, host, newest, TRACED_SEQUENCES_MAX)
            )
        after = self._seen[host]
        upto = min(newest, after + TRACED_SEQUENCES_MAX)
        if upto > after:
            fates = await self.transactions.run(partial(self._read, host=host, after=after, upto=upto))
            await asyncio.to_thread(self.tracer.record, partial(self._spans, host, fates))
            self._seen[host] = upto

    def _read(self, connection: Connection, *, host: str, after: int, upto: int) -> list[TracedFate]:
        def is_traced(ref: ChangeRef) -> bool:
            return self.tracer.trace_of(host, ref.change_id, ref.accepted_at_ms) is not None

        return read_traced_fates(connection, host, after, upto, is_traced)

    def _spans(self, host: str, fates: Sequence[TracedFate]) -> Iterator[Span]:
        for fate in fates:
            yield from fate_spans(self.tracer, host, fate)
