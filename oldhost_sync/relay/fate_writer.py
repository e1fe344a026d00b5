"""Writes the fates that wait for a locked row, and numbers the fates that have no number.

One poll a second for all hosts of the process. It needs no lease: two relays at once skip each other's rows.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from oldhost_sync.policy import limits
from oldhost_sync.relay.host_failures import HostFailures
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.outbox.pending_fates import write_pending_fates
from oldhost_sync.store.read.change_feed import hosts_with_work, number_fates


class FateWriter:
    """The pending fates of `hosts`."""

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
            for host in await self._transactions.look(hosts_with_work):
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
