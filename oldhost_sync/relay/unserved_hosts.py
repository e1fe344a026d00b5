"""Looks for hosts that no relay serves though changes wait for them: in the settings of the API, but of no relay.

Nobody else would tell: a host's figures and alerts come from its own relay.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.outbox.relay_queue import unserved_hosts
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)

UNSERVED_LOOK_SECONDS = 60.0


@dataclass(eq=False)
class UnservedHosts:
    """A duty (see `duty`). A host counts from the second look on: a relay that is just being replaced has no lease."""

    name = "looking for hosts that no relay serves"
    host = "all hosts"
    pause_s = UNSERVED_LOOK_SECONDS

    transactions: Transactions
    metrics: RelayMetrics
    _found: frozenset[str] = frozenset()
    _told: frozenset[str] = frozenset()

    async def run_once(self, _now: float) -> float:
        found = frozenset(await self.transactions.run(unserved_hosts, attempts=1))
        told = found & self._found
        for host in sorted(told - self._told):
            logger.warning("changes of %s wait, and no relay serves it: name it in the relays' SYNC_OLDHOST_URLS", host)
        for host in sorted(self._told - told):
            self.metrics.unserved.remove(host)
        for host in sorted(told):
            self.metrics.unserved.labels(host).set(1)
        self._found, self._told = found, told
        return UNSERVED_LOOK_SECONDS
