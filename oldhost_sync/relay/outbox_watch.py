"""The wait for something in the outbox, shared by all relays of a process: one statement that waits in MariaDB.

Looking from here cost a fifth of an idle host's CPU, most of it for waking up. A relay whose changes wait for the next
signal is not told of more of the same; of an emergency everybody hears at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.outbox.relay_queue import Unrelayed, await_unrelayed

NOTHING = Unrelayed()

_Wait = asyncio.Task[dict[str, Unrelayed]]


@dataclass(eq=False)
class OutboxWatch:
    """For all hosts whose lease `owner` holds. One wait is under way at a time; two begin `pace.poll_s` apart."""

    transactions: Transactions
    owner: str
    pace: RelayPace = field(default_factory=RelayPace)
    _wait: _Wait | None = None
    _next_at: float = float("-inf")
    # By host: the last wait that its relay has heard of, and what it said.
    _heard: dict[str, _Wait] = field(default_factory=dict)
    _seen: dict[str, Unrelayed] = field(default_factory=dict)

    async def look(self, host: str, patience_s: float | None) -> Unrelayed:
        """What the outbox has for `host`, once a wait ends; after `patience_s` (None: whenever) what it had last.

        Raises what the wait raised: StoreError or DBAPIError, to each relay once.
        """
        if self._wait is None or self._heard.get(host) is self._wait:
            self._wait = asyncio.create_task(self._await_something())
        wait = self._wait
        if (await asyncio.wait({wait}, timeout=patience_s))[0]:
            self._heard[host], self._seen[host] = wait, NOTHING
            self._seen[host] = wait.result().get(host, NOTHING)
        return self._seen.get(host, NOTHING)

    async def _await_something(self) -> dict[str, Unrelayed]:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._next_at - clock()))
        self._next_at = clock() + self.pace.poll_s
        known = [host for host, seen in self._seen.items() if seen.anything]
        return await self.transactions.look(
            lambda connection: await_unrelayed(connection, self.owner, known, self.pace.wait_s)
        )
