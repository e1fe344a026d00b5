"""Virtual time, one thread: blocking code runs in greenlets that hand over to this hub at every wait.

The seed decides everything: which of several things due at the same moment comes first, how long each takes, what
fails. A `Process` can be killed (its tasks are never resumed: no `finally` of theirs can reach the world any more),
stopped and continued (what wakes it meanwhile is kept, its connections stay open), as kill -9, SIGSTOP and SIGCONT do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

EPOCH = 1_750_000_000.0


class Dead(BaseException):
    """Raised at every IO of a process that was killed: its clean-up must not touch the world."""


class Stuck(Exception):
    """The world did not come to rest within its bound."""


class Timer:
    """Something due; `cancel` forgets it."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], None] | None) -> None:
        self.act = act

    def cancel(self) -> None:
        self.act = None


class Task(greenlet):  # type: ignore[misc] # greenlet has no types
    """One thread of a process."""

    process: Process
    parked = 0


class Ticket:
    """A task's place while it waits: good for one entry, whoever wakes it first."""

    __slots__ = ("number", "task")

    def __init__(self, task: Task) -> None:
        task.parked += 1
        self.task = task
        self.number = task.parked

    def expire(self) -> None:
        self.wake(None)

    def wake(self, value: object) -> None:
        process = self.task.process
        if process.stopped:
            process.do(lambda: self._enter(value))
        elif process.alive:
            self._enter(value)

    def _enter(self, value: object) -> None:
        task = self.task
        if task.parked == self.number and not task.dead:
            task.parked += 1
            task.switch(value)


class Process:
    """One operating-system process, or one part of the world that never dies."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.alive = True
        self.stopped = False
        self.mortal = False  # faults may kill it; somebody starts it again
        self.role = name.split("-", maxsplit=1)[0]
        self.late_s = 0.0  # its next transaction begins so much later
        self.powerless = False  # it dies with its machine: no connection of it says goodbye
        self.tasks: dict[Task, None] = {}
        self.at_death: list[Callable[[], None]] = []
        self.at_go_on: list[Callable[[], None]] = []
        self._kept: list[Callable[[], None]] = []

    def spawn(self, act: Callable[[], Any]) -> None:
        """Begin a thread."""
        task: Task = Task(lambda: self._run(task, act), self.hub.greenlet)
        task.process = self
        self.tasks[task] = None
        self.hub.soon(lambda: self.do(task.switch))

    def do(self, act: Callable[[], None]) -> None:
        """Let `act` happen in this process: now, when it is continued, or never."""
        if not self.alive:
            return
        if self.stopped:
            self._kept.append(act)
        else:
            act()

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        if not self.alive:
            return
        self.stopped = False
        kept, self._kept = self._kept, []
        for act in kept:
            self.hub.soon(lambda act=act: self.do(act))  # type: ignore[misc]
        for act in self.at_go_on:
            act()

    def kill(self) -> None:
        """kill -9. A task that kills its own process ends at its next IO, which is the one it is in."""
        if not self.alive:
            return
        self.alive = False
        self._kept = []
        for act in self.at_death:
            act()

    def check(self) -> None:
        """At every IO: the dead do none."""
        if not self.alive:
            raise Dead

    def _run(self, task: Task, act: Callable[[], Any]) -> None:
        try:
            act()
        except (Dead, GreenletExit):
            pass
        except Exception as error:
            self.hub.failed(self, error)
        finally:
            self.tasks.pop(task, None)


class Hub:
    """The clock and the queue of what is due. `now` in epoch seconds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = EPOCH
        self.greenlet = getcurrent()
        self.failures: list[str] = []
        self.processes: list[Process] = []
        self._due: list[tuple[float, float, int, Timer]] = []
        self._count = 0
        self._chance = random.random
        self._over = False

    # ------------------------------------------------------------------------------------------------------ in the hub

    def process(self, name: str) -> Process:
        process = Process(self, name)
        self.processes.append(process)
        return process

    def at(self, when: float, act: Callable[[], None]) -> Timer:
        timer = Timer(act)
        self._count = count = self._count + 1
        heappush(self._due, (max(when, self.now), self._chance(), count, timer))
        return timer

    def after(self, seconds: float, act: Callable[[], None]) -> Timer:
        return self.at(self.now + seconds, act)

    def soon(self, act: Callable[[], None]) -> Timer:
        return self.at(self.now, act)

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is due ever."""
        due = self._due
        while due:
            when, _, _, timer = heappop(due)
            act = timer.act
            if act is not None:
                timer.act = None
                self.now = when
                act()
                return True
        return False

    def next_at(self) -> float | None:
        due = self._due
        while due and due[0][3].act is None:
            heappop(due)
        return due[0][0] if due else None

    def run_until(self, when: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Let things happen up to `when`, or until `stop`; True when it was that."""
        due = self._due
        while not stop():
            while due and due[0][3].act is None:
                heappop(due)
            if not due or due[0][0] > when:
                self.now = max(self.now, when)
                return False
            self.now, _, _, timer = heappop(due)
            act, timer.act = timer.act, None
            if act is not None:
                act()
        return True

    def failed(self, process: Process, error: BaseException) -> None:
        import traceback

        self.failures.append(f"{process.name}: {''.join(traceback.format_exception(error))}")

    def end(self) -> None:
        """End all tasks; what they clean up reaches nothing."""
        self._over = True
        self._due.clear()
        for process in self.processes:
            process.alive = False
            for task in list(process.tasks):
                while not task.dead:
                    task.throw(GreenletExit)
            process.tasks.clear()

    # ------------------------------------------------------------------------------------------------------- in a task

    def park(self, seconds: float | None, listen: Callable[[Callable[[Any], None]], None] | None = None) -> Any:
        """Wait until `seconds` have gone by (None is returned) or `listen`'s callback is called (its argument is)."""
        task = getcurrent()
        assert isinstance(task, Task), "only a task can wait"
        process = task.process
        process.check()
        if self._over:
            raise Dead
        ticket = Ticket(task)
        if seconds is not None:
            self.after(seconds, ticket.expire)
        if listen is not None:
            listen(lambda value: (self.soon(lambda: ticket.wake(value)), None)[1])
        value = self.greenlet.switch()
        process.check()
        return value

    def sleep(self, seconds: float) -> None:
        self.park(max(seconds, 0.0))

    def monotonic(self) -> float:
        return self.now


class Condition:
    """The session's condition. One thread: what is done between two waits is atomic."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: list[Callable[[Any], None]] = []

    def __enter__(self) -> object:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> object:
        return bool(self._hub.park(timeout, self._waiting.append))

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(True)
