"""Tells people of a relay that fails while the database still takes an alert: MariaDB does not let it look for changes,
because a table is locked or was changed; or Temporal answers, and does not take its signals.

Nobody else would: the looks for late emergencies and the hosts' figures read the same tables, and a writer that is
handed nothing has nothing to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from oldhost_sync.relay.host_failures import HostFailures
from oldhost_sync.relay.host_relay import HostRelay
from oldhost_sync.relay.relay import RelayState
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import close_alert, raise_alert, require_alerts
from oldhost_sync.store.errors import StoreError

KIND = "relay-failing"
LOOK_SECONDS = 5.0
# So long a relay fails, while the database answers, before people are told: less than the 30 s that are promised for
# emergencies, and more than the pause after which a relay tries again when an outage is over.
LASTS_SECONDS = 12.0
# In these the relay has the lease, and works. One on standby knows nothing of the other's failure.
_WORKS = {RelayState.ACTIVE, RelayState.HOLDING_BACK}


@dataclass(eq=False)
class FailingRelays:
    """A duty (see `duty`) of the whole process, which needs no lease: its table may be the one that is locked.

    `writer_troubles`: what is wrong with each host's writer; another alert tells of that.
    """

    name = "telling of relays that fail"
    host = "all hosts"
    pause_s = LOOK_SECONDS

    transactions: Transactions
    relays: Mapping[str, HostRelay]
    writer_troubles: Callable[[], Mapping[str, str]]
    _since: dict[str, float] = field(default_factory=dict)
    # Whose alert may be open: at first all, and each after a time without work, since other processes open them, too.
    _open: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._open = set(self.relays)

    async def run_once(self, now: float) -> float:
        whys = {host: self._why(host) for host in self.relays}
        if any(whys.values()):
            await self._require_answer()
        with HostFailures() as failures:
            for host, why in whys.items():
                with failures.of(host):
                    await self._check(host, why, now)
        return LOOK_SECONDS

    async def _require_answer(self) -> None:
        """An outage of the whole database is no relay's own failure."""
        try:
            await self.transactions.run(require_alerts, attempts=1)
        except StoreError:
            self._since.clear()
            raise

    async def _check(self, host: str, why: str, now: float) -> None:
        works = self.relays[host].condition in _WORKS
        if not works:
            self._open.add(host)  # another process may raise it meanwhile
        if not why:
            self._since.pop(host, None)
            if host in self._open and works:
                await self.transactions.run(partial(close_alert, host=host, dedupe_key=KIND), attempts=1)
                self._open.discard(host)
        elif now >= self._since.setdefault(host, now) + LASTS_SECONDS:
            raised = partial(raise_alert, host=host, kind=KIND, severity="critical", message=why)
            await self.transactions.run(raised, attempts=1)

    def _why(self, host: str) -> str:
        relay = self.relays[host].relay
        if relay.condition is RelayState.DATABASE_AWAY:
            return f"The relay can't look for changes: {relay.why}."
        if relay.condition is RelayState.WRITER_AWAY and not self.writer_troubles().get(f"writer {host}"):
            return f"Temporal does not take the relay's signals: {relay.why}."
        return ""
