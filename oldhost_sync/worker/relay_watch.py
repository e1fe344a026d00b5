"""Each worker looks whether relays serve its hosts: relays tell of a missing worker, and only workers can tell of a
missing relay, since they post alerts, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection, Engine

from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.relay_queue import unserved_hosts
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

KIND = "no-relay"
# Longer than a relay's lease lasts without it, and than a single relay needs to be replaced.
LOOK_SECONDS = 20.0
_MESSAGE = "changes wait, and no relay serves this host: start one, or name the host in the relays' SYNC_OLDHOST_URLS"


@dataclass(eq=False)
class RelayWatch:
    """The watch of one worker. A host counts from the second look in a row on, so after 20 to 40 s."""

    engine: Engine
    hosts: Sequence[str]
    _found: frozenset[str] = frozenset()
    # Whose alert may be open: at first all, since an earlier worker may have opened them.
    _open: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._open = set(self.hosts)

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
        self._found, self._open = run_in_transaction(self.engine, self._look, attempts=1)

    def _look(self, connection: Connection) -> tuple[frozenset[str], set[str]]:
        found = frozenset(unserved_hosts(connection)).intersection(self.hosts)
        missed = found & self._found
        for host in sorted(missed):
            raise_alert(connection, host, KIND, "critical", _MESSAGE)
        for host in sorted(self._open - found):
            close_alert(connection, host, KIND)
        return found, (self._open & found) | missed
