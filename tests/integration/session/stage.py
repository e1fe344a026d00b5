"""A session on a real MariaDB and a real simulated OldHost, with a clock to shift and a hook before and after each
call.

`Doomed` is how a test kills a process between two steps: from then on nothing of that process does anything.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.records import RecordingActivities
from oldhost_simulator.admin import Controls
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.events import ConnectionEnd, End, Ready, Reply
from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.drivers.http.response import Response
from oldhost_sync.drivers.http.wire import HttpWire
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.connection import Heartbeat, HostConnection, OldHostConnection, _reply
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.expected_nonce import FirstContact
from oldhost_sync.oldhost.ledger import Ledger
from oldhost_sync.oldhost.recovery import Ended, Opened, Opening
from oldhost_sync.oldhost.refusals import ConnectionPace
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.changes import ChangeResult
from oldhost_sync.policy.machine.events import OpeningPostponed, SendEnded
from oldhost_sync.policy.rules.apart import PAUSES_MS
from tests.conformance.maria_world import HOST, MariaWorld
from workflows import messages


@dataclass(frozen=True)
class StageLimits(SessionLimits):
    """A second look comes at once, and may take its time."""

    @property
    def second_look_seconds(self) -> float:
        return 0.02

    @property
    def late_seconds(self) -> float:
        return 0.02


LIMITS = StageLimits(
    request_timeout_seconds=0.4,
    settle_seconds=3.0,
    reconnect_seconds_max=0.3,
    connect_pause_seconds=0.02,
    busy_pause_seconds_min=0.01,
    busy_pause_seconds_max=0.05,
    busy_waits_max=3,
    mark_margin_seconds=1.0,  # at once: an answer never comes before the next mark, however slow this process is
    look_up_seconds=0.02,
    early_look_pauses=(),
    predecessor_seconds=0.3,
)
EVENT_SECONDS_MAX = 5.0


class ProcessDied(BaseException):
    """The process is gone: no code of the product may catch this and do IO."""


class Endless(ReplyTimeout):
    """Waits the request timeout, whatever it learns: a simulator in a busy test process is slow now and then."""

    def wait_seconds(self, most: float) -> float:
        return most


# What an operation has by HTTP and in a frame.
OPERATIONS = (b" HTTP/1.1\r\n", b'"type":"operation"')
Hook = Callable[[str, str], None]
"""Called with a call's name and "before" or "after"."""


def no_hook(call: str, when: str) -> None:
    """Nothing happens."""


@dataclass
class Process:
    """One worker process: its hook sees every IO call; after its death each of them fails.

    `forged`: what it hears instead of OldHost's answers, which does not hear of these operations or questions.
    `requests`: the operations that it wrote, byte by byte; `reply_seconds`: how long it would wait for each reply.
    """

    hook: Hook = no_hook
    dead: bool = False
    calls: list[str] = field(default_factory=list)
    clock_offset: float = 0.0
    forged: list[Response] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    reply_seconds: list[float] = field(default_factory=list)
    reply_timeout: ReplyTimeout = field(default_factory=Endless)

    def clock(self) -> float:
        return time.monotonic() + self.clock_offset

    def around(self, name: str, act: Callable[[], Any]) -> Any:
        self._see(name, "before")
        result = act()
        self._see(name, "after")
        return result

    def _see(self, name: str, when: str) -> None:
        if self.dead:
            raise ProcessDied
        if when == "before":
            self.calls.append(name)
        self.hook(name, when)

    def die(self) -> None:
        self.dead = True
        raise ProcessDied


class WatchedLedger:
    """The real ledger, each call seen by the process's hook."""

    def __init__(self, ledger: Ledger, process: Process) -> None:
        self._ledger = ledger
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._ledger, name)
        return lambda *args, **kwargs: self._process.around(name, lambda: method(*args, **kwargs))


class WatchedConnection:
    """The real connection, likewise."""

    def __init__(self, connection: OldHostConnection, process: Process) -> None:
        self._connection = connection
        self._process = process
        self._asking = False
        self.wire = connection.wire

    def is_alive(self) -> bool:
        return bool(self._process.around("is_alive", self._connection.is_alive))

    def begin(self, request: bytes, *, timeout_seconds: float, while_waiting: Heartbeat) -> None:
        def write() -> None:
            if not self._process.forged:
                self._connection.begin(request, timeout_seconds=timeout_seconds, while_waiting=while_waiting)

        self._asking = request.startswith(b"GET") or not any(sign in request for sign in OPERATIONS)
        if not self._asking:
            self._process.requests.append(request)
        self._process.around("ask" if self._asking else "write", write)

    def await_answer(self, seconds: float, while_waiting: Heartbeat) -> bool:
        return bool(self._process.around("await_answer", lambda: self._connection.await_answer(seconds, while_waiting)))

    def finish(self, *, while_waiting: Heartbeat, reply_seconds: float = math.inf) -> Reply:
        def read() -> Reply:
            if self._process.forged:
                return self._forged(self._process.forged.pop(0))
            if not self._asking:
                self._process.reply_seconds.append(reply_seconds)
            return self._connection.finish(while_waiting=while_waiting, reply_seconds=reply_seconds)

        reply: Reply = self._process.around("hear" if self._asking else "read", read)
        return reply

    def _forged(self, response: Response) -> Reply:
        assert isinstance(self.wire, HttpWire)
        reply = _reply(self.wire.read(response), self.wire)
        assert reply is not None
        return reply

    def at_ms(self) -> int:
        return self._connection.at_ms()

    @property
    def ready(self) -> Ready:
        return self._connection.ready

    def greet(self, *, timeout_seconds: float, while_waiting: Heartbeat) -> End:
        return self._connection.greet(timeout_seconds=timeout_seconds, while_waiting=while_waiting)

    def keep_alive(self) -> None:
        self._connection.keep_alive()

    def close(self) -> None:
        self._connection.close()

    @property
    def ending(self) -> ConnectionEnd:
        return self._connection.ending


class Stage:
    """OldHost, the database, and processes that come and go."""

    driver: Driver = HTTP
    resent_types: frozenset[str] = frozenset()

    def __init__(self, world: MariaWorld, simulator: Simulator, limits: SessionLimits = LIMITS) -> None:
        self.world = world
        self.simulator = simulator
        self.limits = limits
        self.opened: list[Session] = []
        self.first_contact = FirstContact()
        self.pace = ConnectionPace()

    # ------------------------------------------------------------------------------------------------- acting

    def open(self, process: Process | None = None) -> Ended:
        outcome = self.begin(process or Process()).open()
        if isinstance(outcome, Opened):
            self.opened.append(outcome.session)
        return outcome

    def resolve(self, mode: str) -> messages.ActRecorded:
        """An operator resolves, as a worker carries it out: OldHost is asked first."""
        activities = RecordingActivities(self.world.engine, count=lambda _: self.begin(Process()).count())
        own_id = uuid.uuid4().hex
        decision = messages.OperatorAct(HOST, "resolve", "ada", "a test", mode=mode, decision_id=own_id)
        decided: messages.ActRecorded = ActivityEnvironment().run(activities.record_act, decision)
        return decided

    def begin(self, process: Process) -> Opening:
        return Opening(
            ledger=WatchedLedger(self.world.ledger, process),
            connect=lambda: self._connect(process),
            owner="test",
            condition=threading.Condition(),
            clock=process.clock,
            limits=self.limits,
            heartbeat=lambda: None,
            capabilities=self.driver.capabilities,
            resent_types=self.resent_types,
            reply_timeout=process.reply_timeout,
            first_contact=self.first_contact,
            pace=self.pace,
        )

    def session(self, process: Process | None = None) -> Session:
        """A session, whatever must be waited for first; the settle time and bans pass at once."""
        return self.opening(process).session

    def rest(self) -> None:
        """The longest pause of what waits apart is over."""
        self.world.age(PAUSES_MS[-1] / 1000)

    def opening(self, process: Process | None = None) -> Opened:
        outcome = self.open(process)
        while isinstance(outcome, OpeningPostponed):
            assert outcome.reason in {"settle", "ban", "connection", "in-use", "refused", "credentials", "tls"}, outcome
            self.pace = ConnectionPace()
            if outcome.reason in {"settle", "ban"}:
                self.world.age(outcome.wait_ms / 1000)
            outcome = self.open(process)
        assert isinstance(outcome, Opened), outcome
        return outcome

    def fault(self, name: str, **parameters: Any) -> None:
        self.simulator.control(lambda controls: controls.switch_on({"name": name, **parameters}))

    def control(self, act: Callable[[Controls], Any]) -> Any:
        return self.simulator.control(act)

    def close(self) -> None:
        for session in self.opened:
            session.close("the test is over")

    def connector(self, process: Process) -> Connector:
        return Connector(self.address, self.driver, process.clock)

    @property
    def address(self) -> Address:
        return Address(self.simulator.config.host, self.simulator.port)

    def _connect(self, process: Process) -> HostConnection:
        connection = process.around("connect", lambda: self.connector(process).connect(lambda: None))
        return WatchedConnection(connection, process)

    # ------------------------------------------------------------------------------------------------- looking

    def stats(self) -> dict[str, Any]:
        return self.simulator.control(Controls.stats)

    def journal(self) -> list[tuple[int, str, int]]:
        """Of what OldHost applied or rejected: nonce, outcome, change id."""
        entries = self.simulator.control(lambda controls: controls.journal(0))
        return [(one.nonce, one.outcome, (one.body or {}).get("event_id", 0)) for one in entries]

    def applied_ids(self) -> list[int]:
        return [change_id for _, outcome, change_id in self.journal() if outcome == "applied"]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + EVENT_SECONDS_MAX
        while not holds():
            assert time.monotonic() < until, "it never came to pass"
            threading.Event().wait(0.005)

    def check_clean(self, *, replays: int = 0) -> None:
        """OldHost never saw a gap or a replay of ours (I1)."""
        stats = self.stats()
        assert (stats["gaps"], stats["replays"]) == (0, replays)


def send(session: Session, change_ids: Sequence[int], sequence: int = 0, *, urgent: bool = False) -> SendEnded:
    return session.send(change_ids, lambda: None, sequence=sequence, urgent=urgent)


def outcomes(sent: SendEnded | Sequence[ChangeResult]) -> list[str]:
    fates = sent.fates if isinstance(sent, SendEnded) else sent
    return [fate.outcome for fate in fates]


def simulator() -> Simulator:
    return Simulator(Config(latency_ms=0, ban_seconds=900, first_nonce=501))
