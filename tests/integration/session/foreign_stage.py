"""A stage with a host of another make in OldHost's place (`tests/foreign_host`)."""

from __future__ import annotations

from dataclasses import replace

from oldhost_simulator.simulator import Simulator
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import Address, parse_address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.recovery import Ended
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.events import OpeningPostponed
from tests.conformance.maria_world import MariaWorld
from tests.foreign_host.host import ForeignHost
from tests.integration.session.stage import LIMITS, Process, Stage

# The host answers at once, from a thread of the test: only a test of its silence is to meet the timeout.
PATIENT = replace(LIMITS, request_timeout_seconds=1.5)


class ForeignStage(Stage):
    """`host`: what the sessions speak to; `access`: our files for it, and the proxy on the way. The stage's own faults
    and looks are the simulator's, and there is none.
    """

    simulator: Simulator
    access = Access()

    def __init__(self, world: MariaWorld, host: ForeignHost, limits: SessionLimits = PATIENT) -> None:
        super().__init__(world, None, limits)  # type: ignore[arg-type]
        self.host = host

    def open(self, process: Process | None = None) -> Ended:
        """The test's clock skips the pauses in which the host would notice that the connection before has ended."""
        self.host.wait_until_free()
        return super().open(process)

    def refused(self, process: Process | None = None) -> OpeningPostponed:
        outcome = self.open(process)
        assert isinstance(outcome, OpeningPostponed), outcome
        return outcome

    def connector(self, process: Process) -> Connector:
        return Connector(self.address, self.driver, process.clock, access=self.access)

    @property
    def address(self) -> Address:
        return parse_address(self.host.url)

    def applied_ids(self) -> list[int]:
        return self.host.applied()

    def check_clean(self, *, replays: int = 0) -> None:
        """The host never saw a gap or a replay of ours (I1)."""
        assert (self.host.gaps, self.host.replays) == (0, replays)
