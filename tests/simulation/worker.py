"""A worker process: the product's own activities on the simulation's database, wire and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.records import RecordingActivities
from activities.session import SessionActivities
from activities.signal_recovery import RecoveryActivities
from activities.submissions import SubmissionActivities
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connection import AnswerLimit, OldHostConnection
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import NoConnection
from oldhost_sync.oldhost.recovery import Opening
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.actions import (
    CloseSession,
    LoadOutstanding,
    OpenSession,
    Probe,
    RecordConditions,
    Send,
    StopSends,
    Sweep,
)
from tests.simulation.hub import Condition, Hub, Process
from tests.simulation.network import Link, connected
from tests.simulation.run_histories import SimulatedHistories
from tests.simulation.temporal import Attempt, in_activity
from tests.simulation.workflow_run import CONVERTER, payload_of
from workflows import messages

ARGUMENTS: dict[str, type] = {
    "open_session": OpenSession,
    "send": Send,
    "stop_sends": StopSends,
    "probe": Probe,
    "close_session": CloseSession,
    "record_submissions": messages.Submissions,
    "load_outstanding": LoadOutstanding,
    "sweep": Sweep,
    "record_act": messages.OperatorAct,
    "recover_submissions": messages.Recovery,
    "record_conditions": RecordConditions,
}
CONNECT_SECONDS_MAX = 5.0


class Flag:
    """As much of `threading.Event` as is used."""

    def __init__(self, hub: Hub) -> None:
        self._gate = Condition(hub)
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._gate.notify_all()

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._gate.wait(timeout)
        return self._set


class Silent:
    """Metrics that nobody reads."""

    def __getattr__(self, _: str) -> Silent:
        return self

    def __call__(self, *_: object) -> Silent:
        return self


class Sessions(SessionActivities):
    """The real sessions with the simulation's clock, gate and connection."""

    world: Any
    process: Process
    link: Link
    wall: Callable[[], float]
    limit: AnswerLimit

    def _write_down(self) -> None:
        """What is told of sessions is for people, and has tests of its own."""

    def _opening(self, host: str, beat: Callable[[], None]) -> Opening:
        opening = super()._opening(host, beat)
        # Whichever clock the product chose: the steady one, or the wall's, which jumps.
        clock = self.clock if opening.clock is self.clock else self.wall
        return replace(opening, condition=Condition(self.world.hub), clock=clock, connect=lambda: self._connect(clock))

    def _connect(self, clock: Callable[[], float]) -> OldHostConnection:
        world, process = self.world, self.process
        process.check()
        mode = world.faults.at("connect", process)
        if mode == "die":
            process.kill()
            process.check()
        if mode == "hang" or self.link.parted:
            world.hub.sleep(CONNECT_SECONDS_MAX)
            raise NoConnection("no answer")
        world.hub.sleep(0.001)
        if mode == "before" or not world.oldhost.up:
            raise NoConnection("refused")
        client, end = connected(world.hub, self.link, process, world.faults)
        number = world.oldhost.accept(end)
        world.connected(number, client, process)
        if mode == "after":
            client.close()
            raise NoConnection("gone at once")
        return OldHostConnection(client, clock, world.kind.driver, limit=self.limit)  # type: ignore[arg-type]


class Worker:
    """`polls` its own queue and the shared one until it is killed, stopped or leaving."""

    def __init__(self, world: Any, number: int, limits: SessionLimits) -> None:
        self.world = world
        self.hub: Hub = world.hub
        self.process = process = self.hub.process(f"worker-{number}")
        process.mortal = True
        self.leaving = False
        self.cut_off = False
        self.queue = f"oldhost-sync-session-{number}"
        self.link = Link(self.hub)
        self.wall_offset = 0.0
        engine = world.engine(process)
        self.sessions = Sessions(
            engine=engine,
            connect_to=lambda host, clock: Connector(Address(host, 1), world.kind.driver, clock),
            task_queue=self.queue,
            owner=process.name,
            limits=lambda _: limits,
            metrics=Silent(),  # type: ignore[arg-type]
            clock=self.hub.monotonic,
        )
        self.sessions._leaving = Flag(self.hub)  # type: ignore[assignment]
        self.sessions.world, self.sessions.process, self.sessions.link = world, process, self.link
        self.sessions.limit = AnswerLimit()
        self.sessions.wall = lambda: self.hub.now + self.wall_offset
        recording = RecordingActivities(engine, count=self.sessions.count, rest=self.hub.sleep)
        recovery = RecoveryActivities(engine, SimulatedHistories(world.temporal, process))
        self._activities: dict[str, Callable[[Any], Any]] = {
            name: getattr(owner, name)
            for owner, names in (
                (self.sessions, ("open_session", "send", "stop_sends", "probe", "close_session")),
                (SubmissionActivities(engine), ("record_submissions",)),
                (recording, ("load_outstanding", "sweep", "record_act", "record_conditions")),
                (recovery, ("recover_submissions",)),
            )
            for name in names
        }
        process.spawn(self.sessions.watch)

    def polls(self, queue: str) -> bool:
        return queue in {messages.TASK_QUEUE, self.queue}

    def perform(self, attempt: Attempt) -> None:
        self.process.spawn(lambda: self._perform(attempt))

    def _perform(self, attempt: Attempt) -> None:
        def beat() -> None:
            self.process.check()
            if not self.world.temporal.away and not self.cut_off:
                attempt.beat_at = self.hub.now

        in_activity(beat, attempt.run, attempt.activity_id)
        argument: Any = CONVERTER.from_payload(attempt.argument, ARGUMENTS[attempt.name])
        result, error = None, None
        try:
            answer = self._do(attempt.name, argument)
            if attempt.name == "recover_submissions" and answer.recorded:
                self.world.sometimes.hit("signals of a closed run recovered")
            if attempt.name == "send" and "longer than its answers take" in answer.reason:
                self.world.sometimes.hit("a reply given up before its time")
            result = payload_of(answer)
        except Exception as raised:
            self.world.raised(attempt.name, raised)
            error = ApplicationError(str(raised), type=type(raised).__name__)
        mode = self.world.faults.at("result", self.process, attempt.name)
        if mode == "die":
            self.process.kill()
            self.process.check()
        if mode == "before":
            return
        if mode == "hang":
            self.hub.sleep(200.0)
        self.hub.sleep(0.002 + self.hub.random.random() * 0.01)
        while self.world.temporal.away or self.cut_off:
            self.hub.sleep(1.0)
        self.world.temporal.completed(attempt, result, error)
        if mode == "after":
            self.hub.sleep(10.0)
            self.world.temporal.completed(attempt, result, error)

    def _do(self, name: str, argument: Any) -> Any:
        token = object()
        if name == "record_act":
            self.world.deciding[token] = self.process
        try:
            return self._activities[name](argument)
        finally:
            self.world.deciding.pop(token, None)

    def leave(self, done: Callable[[], None]) -> None:
        """SIGTERM, as `worker.py` does it."""
        self.leaving = True

        def drain() -> None:
            self.sessions.drain()
            self.hub.sleep(0.1)
            done()

        self.process.spawn(drain)


def settle_time(limits: SessionLimits) -> timedelta:
    return timedelta(seconds=limits.settle_seconds)
