"""The relay's watchdog, as far as the writer sees it: it nudges the writer while changes wait."""

from __future__ import annotations

from typing import Any

from oldhost_sync.relay.watchdog import NUDGE_SECONDS
from tests.simulation.workflow_run import payload_of
from workflows import messages

_WAITS = "SELECT 1 FROM outbox_events WHERE processed_at IS NULL LIMIT 1"


class Nudges:
    """From the moment on when Temporal's clock was set back: before, they change nothing, and would move all seeds."""

    def __init__(self, world: Any) -> None:
        self._world = world
        world.hub.process("nudges").spawn(self._run)

    def _run(self) -> None:
        while True:
            self._world.hub.sleep(NUDGE_SECONDS)
            if self._world.database.rows(_WAITS) and not self._world.temporal.away:
                self._world.temporal.signal("enqueue", payload_of(messages.EnqueueBatch()))
