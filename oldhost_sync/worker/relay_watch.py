"""Each worker looks whether relays serve its hosts: relays tell of a missing worker, and only workers can tell of a
missing relay, since they post alerts, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.store.alerts import keep_condition
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.relay_queue import unserved_hosts
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

KIND = "no-relay"
# Longer than a relay's lease lasts without it, and than a single relay needs to be replaced.
LOOK_SECONDS = 20.0
_UNSERVED = Fact(
    "changes wait, and no relay serves this host: start one, or name the host in the relays' SYNC_OLDHOST_URLS"
)


@dataclass(eq=False)
class RelayWatch:
    """The watch of one worker. `clock`: seconds, monotonic."""

    engine: Engine
    hosts: Sequence[str]
    clock: Callable[[], float] = time.monotonic
    _conditions: Conditions = field(default_factory=Conditions)

    async def watch(self) -> None:
        """Look repeatedly, until cancelled. Raises errors that nobody foresaw."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except StoreError as error:
                logger.debug("can't look whether relays are at work: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Look once. Raises the store's errors."""
        now = self.clock()
        unserved = run_in_transaction(self.engine, unserved_hosts, attempts=1)
        for host in self.hosts:
            self._conditions.found(host, KIND, _UNSERVED if host in unserved else None, now)
        steps = self._conditions.due(now)
        if not steps:
            return

        def keep(connection: Connection) -> list[str]:
            return [keep_condition(connection, step) for step in steps]

        news = run_in_transaction(self.engine, keep, attempts=1)
        for step, line in zip(steps, news, strict=True):
            self._conditions.written(step, now)
            if line:
                logger.warning(line)
