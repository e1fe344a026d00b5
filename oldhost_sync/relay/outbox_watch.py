"""Waits for unrelayed changes, for all relays of a process: one statement that waits inside MariaDB.

Polling from here took a fifth of an idle host's CPU, most of it for waking up. A relay that already has changes waiting
for its next signal is not woken for more of them; any emergency wakes the relays at once.
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
    """For all hosts whose lease `owner` has. One wait runs at a time; waits begin at least `pace.poll_s` apart.

    `transactions` must look by single statements, and have a thread that nothing else needs.
    """

    transactions: Transactions
    owner: str
    pace: RelayPace = field(default_factory=RelayPace)
    _wait: _Wait | None = None
    _began_at: float = float("-inf")
    _ended_at: float = float("-inf")
    # By host: the last wait whose result its relay has got, and that result.
    _heard: dict[str, _Wait] = field(default_factory=dict)
    _seen: dict[str, Unrelayed] = field(default_factory=dict)

    async def look(self, host: str, timeout_s: float | None) -> Unrelayed:
        """What the outbox has for `host`, once a wait ends; after `timeout_s` (None: no timeout) the last result.

        Raises what the wait raised: StoreError or DBAPIError, to each relay once.
        """
        if self._wait is None or self._heard.get(host) is self._wait or self._is_old():
            self._wait = asyncio.create_task(self._await_something())
            self._wait.add_done_callback(_take_failure)
        wait = self._wait
        if (await asyncio.wait({wait}, timeout=timeout_s))[0]:
            self._heard[host], self._seen[host] = wait, NOTHING
            self._seen[host] = wait.result().get(host, NOTHING)
        return self._seen.get(host, NOTHING)

    def _is_old(self) -> bool:
        return self._wait is not None and self._wait.done() and _now() >= self._ended_at + self.pace.poll_s

    async def _await_something(self) -> dict[str, Unrelayed]:
        await asyncio.sleep(max(0.0, self._began_at + self.pace.poll_s - _now()))
        self._began_at = _now()
        known = [host for host, seen in self._seen.items() if seen.anything]
        try:
            return await self.transactions.look(
                lambda connection: await_unrelayed(connection, self.owner, known, self.pace.wait_s)
            )
        finally:
            self._ended_at = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _take_failure(wait: _Wait) -> None:
    """Retrieve the exception: asyncio would log it if no relay waits any more."""
    if not wait.cancelled():
        wait.exception()
