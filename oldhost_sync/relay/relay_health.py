"""How the relays are: those of this process that fail, hosts that none serves, and whether this process is ready."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.probes.health import NEEDS_POLL_SECONDS, Need, Readiness, troubles
from oldhost_sync.relay.host_relay import HostRelay
from oldhost_sync.relay.relay import RelayState
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.watchdog import Watchdog
from oldhost_sync.store.alerts import require_alerts
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.outbox.outstanding_changes import unserved_hosts
from oldhost_sync.telemetry import RelayMetrics

logger = logging.getLogger(__name__)

FAILING = "relay-failing"
FAILING_LOOK_SECONDS = 5.0
UNSERVED_LOOK_SECONDS = 60.0
# In these the relay has the lease, and works. One on standby knows nothing of the other's failure.
_WORKS = {RelayState.ACTIVE, RelayState.HOLDING_BACK}
_TROUBLES = {
    RelayState.STARTING: "it has just started",
    RelayState.DATABASE_AWAY: "the database is away, or does not let it look for changes; its log says why",
    RelayState.WRITER_AWAY: "Temporal does not take signals",
}


@dataclass(eq=False)
class FailingRelays:
    """Reports a relay that fails while the database still takes an alert: MariaDB does not let it look for changes,
    because a table is locked or was changed; or Temporal answers, and does not take its signals. Nobody else would: the
    looks for late emergencies and the hosts' figures read the same tables, and a writer that is handed nothing has
    nothing to tell.

    A duty (see `duty`) of the whole process, which needs no lease: its table may be the one that is locked.
    `writer_troubles`: what is wrong with each host's writer; another alert tells of that.
    """

    name = "looking for relays that fail"
    host = "all hosts"
    pause_s = FAILING_LOOK_SECONDS

    transactions: Transactions
    relays: Mapping[str, HostRelay]
    writer_troubles: Callable[[], Mapping[str, str]]
    conditions: Conditions

    async def run_once(self, now: float) -> float:
        whys = {host: self._why(host) for host in self.relays}
        if any(whys.values()):
            await self._require_answer()
        for host, why in whys.items():
            if why:
                self.conditions.found(host, FAILING, Fact(why), now)
            elif self.relays[host].condition in _WORKS:
                self.conditions.found(host, FAILING, None, now)
            else:
                self.conditions.unknown(host, FAILING)
        return FAILING_LOOK_SECONDS

    async def _require_answer(self) -> None:
        """An outage of the whole database is no relay's own failure. When it is over, a relay tries again a little
        later than this duty.
        """
        try:
            await self.transactions.run(require_alerts, attempts=1)
        except StoreError:
            for host in self.relays:
                self.conditions.unknown(host, FAILING)
            raise

    def _why(self, host: str) -> str:
        relay = self.relays[host].relay
        if relay.condition is RelayState.DATABASE_AWAY:
            return f"The relay can't look for changes: {relay.why}."
        if relay.condition is RelayState.WRITER_AWAY and not self.writer_troubles().get(f"writer {host}"):
            return f"Temporal does not take the relay's signals: {relay.why}."
        return ""


@dataclass(eq=False)
class UnservedHosts:
    """Shows hosts that no relay serves though changes wait for them: in the settings of the API, but of no relay (a
    duty, see `duty`). A worker that serves such a host raises the alert (`worker/watch`). A host counts from the second
    look on: a relay that is just being replaced has no lease.
    """

    name = "looking for hosts that no relay serves"
    host = "all hosts"
    pause_s = UNSERVED_LOOK_SECONDS

    transactions: Transactions
    metrics: RelayMetrics
    _unserved: frozenset[str] = frozenset()
    _shown: frozenset[str] = frozenset()

    async def run_once(self, _now: float) -> float:
        unserved = frozenset(await self.transactions.run(unserved_hosts, attempts=1))
        shown = unserved & self._unserved
        for host in sorted(shown - self._shown):
            logger.warning("changes of %s wait, and no relay serves it: name it in the relays' settings", host)
        for host in sorted(self._shown - shown):
            self.metrics.unserved.remove(host)
        for host in sorted(shown):
            self.metrics.unserved.labels(host).set(1)
        self._unserved, self._shown = unserved, shown
        return UNSERVED_LOOK_SECONDS


@dataclass(eq=False)
class ReadinessCheck:
    """Tells whether this process reaches the database and Temporal, and the writers' health as last seen (a duty, see
    `duty`). A relay on standby is ready: it waits for its turn.
    """

    name = "telling of itself"
    host = "all hosts"
    pause_s = NEEDS_POLL_SECONDS

    relays: Mapping[str, HostRelay]
    watchdog: Watchdog
    readiness: Readiness
    needs: Sequence[Need] = ()

    async def run_once(self, _now: float) -> float:
        relays = {f"relay {host}": _TROUBLES.get(relay.condition, "") for host, relay in sorted(self.relays.items())}
        self.readiness.found(relays | self.watchdog.hindrances() | await troubles(self.needs))
        return self.pause_s
