"""Who watches as far as the writer sees it: workers that watch each other, and the relay's watchdog."""

from __future__ import annotations

from random import Random
from typing import Any

from oldhost_sync.relay.watchdog import NUDGE_SECONDS
from tests.simulation.workflow_run import payload_of
from workflows import messages

SHARE_OF_RUNS, SHARE_TOLD = 0.5, 0.8
TOLD_AFTER_S_MAX = 1.0
PAUSE_S = 30.0
_WAITS = "SELECT 1 FROM outbox_events WHERE processed_at IS NULL LIMIT 1"


class WorkerWatch:
    """In every second run the writer is mostly told when a worker has ended, and now and then of one that lives.

    It has a generator of its own, so that it moves no other choice of a seed.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.hub = world.hub
        self.random = Random(f"{world.seed}/watch")
        self.watches = self.random.random() < SHARE_OF_RUNS
        if self.watches:
            self.hub.process("worker-watch").spawn(self._be_wrong)

    def watch(self, worker: Any) -> None:
        """From the start of `worker`."""
        worker.process.at_death.append(lambda: self._ended(worker))

    def _ended(self, worker: Any) -> None:
        if self.watches and self.random.random() < SHARE_TOLD:
            self.hub.after(self.random.random() * TOLD_AFTER_S_MAX, lambda: self._tell(worker))

    def _be_wrong(self) -> None:
        while not self.world.healing:
            self.hub.sleep(self.random.expovariate(1 / PAUSE_S))
            living = [worker for worker in self.world.workers if worker.process.alive]
            if living:
                self._tell(self.random.choice(living))

    def _tell(self, worker: Any) -> None:
        machine = self.world.machine
        if machine is not None and machine.session.takes_sends and machine.session.task_queue == worker.queue:
            alive = "a living worker" if worker.process.alive else "a worker"
            self.world.sometimes.hit(f"{alive} was said to have ended")
        self.world.temporal.signal("worker_ended", payload_of(worker.queue))


class Nudges:
    """The watchdog nudges the writer while changes wait.

    Only from the moment on when Temporal's clock was set back: before, nudges change nothing, and would move all seeds.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        world.hub.process("nudges").spawn(self._run)

    def _run(self) -> None:
        while True:
            self._world.hub.sleep(NUDGE_SECONDS)
            if self._world.database.rows(_WAITS) and not self._world.temporal.away:
                self._world.temporal.signal("enqueue", payload_of(messages.EnqueueBatch()))
