"""The relay's readiness: whether it reaches the database and Temporal, and the writers' health as last seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oldhost_sync.probes.health import NEEDS_LOOK_SECONDS, Need, Readiness, troubles
from oldhost_sync.relay.host_relay import HostRelay
from oldhost_sync.relay.relay import RelayState
from oldhost_sync.relay.watchdog import Watchdog

_TROUBLES = {
    RelayState.STARTING: "it has just started",
    RelayState.DATABASE_AWAY: "the database is away, or does not let it look for changes; its log says why",
    RelayState.WRITER_AWAY: "Temporal does not take signals",
}


@dataclass(eq=False)
class ReadinessCheck:
    """A duty (see `duty`) of the whole process. A relay on standby is ready: it waits for its turn."""

    name = "telling of itself"
    host = "all hosts"
    pause_s = NEEDS_LOOK_SECONDS

    relays: Mapping[str, HostRelay]
    watchdog: Watchdog
    readiness: Readiness
    needs: Sequence[Need] = ()

    async def run_once(self, _now: float) -> float:
        relays = {f"relay {host}": _TROUBLES.get(relay.condition, "") for host, relay in sorted(self.relays.items())}
        self.readiness.found(relays | self.watchdog.hindrances() | await troubles(self.needs))
        return self.pause_s
