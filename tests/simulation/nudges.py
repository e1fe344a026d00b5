"""The relay's watchdog, as far as the writer sees it: it nudges one under which nothing has ended for long."""

from __future__ import annotations

from typing import Any

from oldhost_sync.relay.writer_watch import QUIET_SECONDS_MAX
from tests.simulation.workflow_run import payload_of
from workflows import messages

_PROGRESS = "SELECT SUM(processed_at IS NULL), COUNT(*) FROM outbox_events"


class Nudges:
    """From the moment on when Temporal's clock was set back: before, they change nothing, and would move all seeds."""

    def __init__(self, world: Any) -> None:
        self._world = world
        world.hub.process("nudges").spawn(self._run)

    def _run(self) -> None:
        before: Any = None
        while True:
            self._world.hub.sleep(QUIET_SECONDS_MAX)
            ((waiting, known),) = self._world.database.rows(_PROGRESS)
            found = known - (waiting or 0)
            if waiting and found == before and not self._world.temporal.away:
                self._world.temporal.signal("enqueue", payload_of(messages.EnqueueBatch()))
            before = found
