"""Sends states again for a requested `resync`: one a second, and only while nothing urgent waits. Changes recorded
together would all be due at once after their debounce, and the burst would delay all other changes.

It works on the oldest unfinished request, from its stored cursor, so a relay that takes over continues there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from oldhost_sync.policy.limits import RESYNC_INTERVAL_SECONDS, RESYNC_LOOK_SECONDS
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.errors import TransactionContended
from oldhost_sync.store.intake.resync import (
    Resync,
    has_room,
    mark_unknown,
    next_share,
    oldest_unfinished,
    record_share,
)


@dataclass(eq=False)
class Resyncer:
    """One host's resyncs (a duty, see `duty`)."""

    name = "sending states again"
    pause_s = RESYNC_LOOK_SECONDS

    transactions: Transactions
    leadership: Leadership

    def __post_init__(self) -> None:
        self.host = self.leadership.host

    async def run_once(self, now: float) -> float:
        """Record the states of the next entity, while there is room for them; then pause for each."""
        if not await self.leadership.hold(now):
            return RESYNC_LOOK_SECONDS
        resync = await self.transactions.look(partial(oldest_unfinished, host=self.host))
        if resync is None:
            return RESYNC_LOOK_SECONDS
        if not await self.transactions.look(partial(has_room, host=self.host)):
            return RESYNC_INTERVAL_SECONDS
        return max(1, await self._record(resync)) * RESYNC_INTERVAL_SECONDS

    async def _record(self, resync: Resync) -> int:
        share = await self.transactions.look(partial(next_share, resync=resync))
        for entity, states in share.states.items():
            for event_type in states:
                mark = partial(mark_unknown, host=self.host, entity=entity, event_type=event_type)
                await self.transactions.look(mark)
        try:
            return await self.transactions.run(partial(record_share, resync=resync, share=share), attempts=1)
        except TransactionContended:
            return 0  # an application has locked one of the entities: the next round tries again
