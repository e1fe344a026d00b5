"""Writes the fates that waited because somebody held their change's row, as soon as the row is free.

One look a second for all hosts of the process. It needs no lease: two relays at once pass over each other's rows.
"""

from __future__ import annotations

from collections.abc import Collection

from oldhost_sync.policy import limits
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.pending_fates import hosts_with_pending_fates, write_pending_fates


class FateWriter:
    """The pending fates of `hosts`."""

    name = "writing fates that waited"
    host = "all hosts"
    pause_s = limits.RELAY_FATES_INTERVAL_SECONDS

    def __init__(self, transactions: Transactions, hosts: Collection[str]) -> None:
        self._transactions = transactions
        self._hosts = frozenset(hosts)

    async def run_once(self, _now: float) -> float:
        """A batch for each host that has any; a full one is followed soon."""
        most = 0
        for host in await self._transactions.run(hosts_with_pending_fates):
            if host in self._hosts:
                most = max(most, await self._write(host))
        return limits.RELAY_POLL_SECONDS if most >= limits.RELAY_FATES_BATCH_ROWS else self.pause_s

    async def _write(self, host: str) -> int:
        batch = limits.RELAY_FATES_BATCH_ROWS
        return await self._transactions.run(lambda connection: write_pending_fates(connection, host, batch))
