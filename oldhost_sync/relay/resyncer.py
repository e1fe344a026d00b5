"""Sends states again as somebody asked for (`resync`): few at a time, and only while nothing urgent waits.

It works on the oldest request that is not through, from where its cursor stands, so a relay that takes over goes on.
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
    mark_unknown,
    next_share,
    oldest_unfinished,
    record_share,
    room,
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
        """Some states, while there is room for them."""
        if not await self.leadership.hold(now):
            return RESYNC_LOOK_SECONDS
        resync = await self.transactions.look(partial(oldest_unfinished, host=self.host))
        if resync is None:
            return RESYNC_LOOK_SECONDS
        states_max = await self.transactions.look(partial(room, host=self.host))
        if states_max:
            await self._record(resync, states_max)
        return RESYNC_INTERVAL_SECONDS

    async def _record(self, resync: Resync, states_max: int) -> None:
        share = await self.transactions.look(partial(next_share, resync=resync, states_max=states_max))
        for entity, states in share.states.items():
            for event_type in states:
                mark = partial(mark_unknown, host=self.host, entity=entity, event_type=event_type)
                await self.transactions.look(mark)
        try:
            await self.transactions.run(partial(record_share, resync=resync, share=share), attempts=1)
        except TransactionContended:
            return  # an application holds one of the entities: the next round tries again
