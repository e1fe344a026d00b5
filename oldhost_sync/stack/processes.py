"""Child processes that never outlive us: each in its own process group, killed by the kernel when we die.

Ctrl-C in a terminal reaches only us; we stop the children in the reverse of their starting order. Each child's
output goes to its own log file. Start children from the main thread: the kernel kills a child when the thread that
started it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Protocol, Self

from oldhost_sync.stack.machine import StackError


class SignalSafeEvent:
    """Like threading.Event, but `set` may be called in a signal handler while the same thread is in `wait`.

    threading.Event takes a lock in both: a signal that arrives within `wait` would then wait for itself, for ever.
    SimpleQueue's `put` is documented as safe there. With several waiting threads, `set` wakes only one at once; the
    others return after their `seconds`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wake_ups: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake_ups.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for `seconds` at most; whether it is set."""
        if not self._is_set:
            with suppress(Empty):
                self._wake_ups.get(timeout=seconds)
        return self._is_set


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
LOOK_AGAIN_SECONDS = 0.02
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
# A free port can be lost between the check and the bind, but hardly twice.
PORT_ATTEMPTS = 3
LOG_BYTES_MAX = 20 * 1024 * 1024


class ProcessError(StackError):
    """A problem with a child process; its log says more."""


class ChildDied(ProcessError):  # noqa: N818 - it says what happened
    """A child ended that should not have. Its last log lines are in the message."""

    def __init__(self, child: Child) -> None:
        self.child = child
        end = "".join(f"\n    {line}" for line in child.last_lines()) or " (it said nothing)"
        super().__init__(f"{child.name} ended ({child.how_it_ended()}); its log {child.log} ends with:{end}")


class StopRequested(ProcessError):  # noqa: N818 - it says what happened
    """`ended` was set while we waited for a child. Not an error."""


class ChildSilent(ProcessError):  # noqa: N818 - it says what happened
    """A child did not become ready in time. It may be retried when the machine is less busy."""


class StartedProcess(Protocol):
    """What a child needs of a started process; `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...


@dataclass
class Child:
    """One process of ours. `start` may be called again after it ended, with the same arguments.

    Setting `ended` interrupts whatever waits for it. A signal handler sets it: an exception raised there could be lost.
    """

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    folder: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    ended: SignalSafeEvent = field(default_factory=SignalSafeEvent)
    process: StartedProcess | None = field(default=None, init=False)
    started_at: float = field(default=0.0, init=False)
    _log_start: int = field(default=0, init=False)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ProcessError(f"{self.name} was not started")
        return self.process.pid

    def start(self) -> None:
        """Start it; its output is appended to its log."""
        if self.running:
            raise ProcessError(f"{self.name} is already running")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = self.launch(log)
        self.started_at = time.monotonic()

    def launch(self, log: IO[bytes]) -> StartedProcess:
        """Start the program, in a process group of its own, with its output going to `log`."""
        return subprocess.Popen(
            list(self.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(self.env) if self.env is not None else None,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - only two system calls, nothing that can lock
        )

    def rotate_log(self) -> None:
        """Rotate a large log: copy it and empty the file, to which the process keeps writing.

        A line that is written between copying and emptying is lost.
        """
        if not self.running or self.log.stat().st_size <= LOG_BYTES_MAX:
            return
        shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
        os.truncate(self.log, 0)
        self._log_start = 0

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return once `ready()`. ChildDied: it ended before; ChildSilent: after `seconds`; StopRequested: `ended`."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.ended.is_set():
                raise StopRequested(f"stopped while waiting for {self.name}")
            if not self.running and not ready():  # it may be what ends that is waited for, or it became ready and ended
                raise ChildDied(self)
            if time.monotonic() > deadline:
                raise ChildSilent(f"{self.name} was not ready after {seconds:g} s; see its log {self.log}")
            self.ended.wait(LOOK_AGAIN_SECONDS)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None when it still runs after `seconds`."""
        if self.process is None:
            return None
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> None:
        """Ask it to end, wait, and kill it and its whole group if it does not."""
        if self.running:
            self.send_signal(self.stop_signal)
            self.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it and all that it started by SIGKILL; returns when it has ended."""
        if self.process is not None:
            self._signal_group(signal.SIGKILL)
            self.process.wait()

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal to this process alone (not to its children)."""
        if self.process is not None:
            self.process.send_signal(signum)

    def said(self) -> str:
        """What it printed since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last_lines(self, count: int = 12) -> list[str]:
        return self.said().splitlines()[-count:] if self.log.exists() else []

    def how_it_ended(self) -> str:
        code = self.process.poll() if self.process is not None else None
        if code is None:
            return "it did not"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _signal_group(self, signum: signal.Signals) -> None:
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signum)
        except (ProcessLookupError, PermissionError):
            return  # it has ended already


class EmbeddedServer(ABC):
    """`with` a server of our own: one child, on a port that stays the same over `stop`, `kill` and `start`."""

    def __init__(self, ended: SignalSafeEvent | None) -> None:
        self._ended = ended or SignalSafeEvent()
        self._child: Child | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it and return once it answers."""

    @abstractmethod
    def stop(self) -> None:
        """An orderly end (SIGTERM, wait)."""

    def kill(self) -> None:
        """End it by SIGKILL; `start` brings it back with what is on disk."""
        self.child.kill()

    @property
    def child(self) -> Child:
        if self._child is None:
            raise RuntimeError("the server was not started")
        return self._child

    @property
    def pid(self) -> int:
        return self.child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_child(
        self, make: Callable[[], Child], ready: Callable[[], bool], port_is_taken: str, *, pinned: bool
    ) -> None:
        """Start the child that `make` returns and wait until it is ready.

        `port_is_taken`: what it prints when another program took its port first. Then `make` is called again for
        another port, unless the port is `pinned`.
        """
        for attempt in range(1, PORT_ATTEMPTS + 1):
            child = self._child = make()
            child.start()
            try:
                child.wait_until(ready, READY_SECONDS_MAX)
            except ChildDied:
                if pinned or port_is_taken not in child.said() or attempt == PORT_ATTEMPTS:
                    raise
            except BaseException:
                child.kill()
                raise
            else:
                return


def die_with(parent: int) -> Callable[[], None]:
    """Run in the child before exec: the kernel kills it when the thread that started it dies."""

    def ask_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before the call above
                os._exit(1)

    return ask_kernel


@dataclass(eq=False)
class Supervisor:
    """A group of children that end together, except those that may be restarted.

    A role may be restarted because it keeps no important state in memory. One that dies repeatedly is restarted after
    growing pauses, each reported with its last log lines: what it needs may come back, and the other children run on.
    """

    RESTARTS_AT_ONCE = 5
    LONG_LIFE_SECONDS = 60.0
    PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 60.0

    on_restart: Callable[[Child], None] | None = None
    on_pause: Callable[[Child, float], None] | None = None
    monotonic: Callable[[], float] = time.monotonic
    ended: SignalSafeEvent = field(default_factory=SignalSafeEvent)
    _children: list[tuple[Child, bool]] = field(default_factory=list)
    _short_lives: dict[str, int] = field(default_factory=dict)
    _paused_until: dict[str, float] = field(default_factory=dict)

    def add(self, child: Child, *, restart: bool = False) -> Child:
        """Start `child` (unless it runs) and watch it from now on."""
        self._children.append((child, restart))
        if not child.running:
            child.start()
        return child

    def watch(self, every_seconds: float = 0.2) -> None:
        """Watch until `ended` is set. Raises ChildDied when a child ends that must not be restarted."""
        while not self.ended.wait(every_seconds):
            self.poll()

    def poll(self) -> None:
        """Check every child once."""
        for child, restart in self._children:
            child.rotate_log()
            if child.running:
                continue
            if not restart:
                raise ChildDied(child)
            if self._is_due(child):
                if self.on_restart is not None:
                    self.on_restart(child)
                child.start()

    def stop(self) -> None:
        """Stop all, the last started first."""
        for child, _restart in reversed(self._children):
            child.stop()
        self._children.clear()

    def _is_due(self, child: Child) -> bool:
        """Whether to restart it now: at once at first, then after a pause that doubles with each short life."""
        now = self.monotonic()
        if child.name not in self._paused_until:
            pause = self._pause(child, now)
            self._paused_until[child.name] = now + pause
            if pause and self.on_pause is not None:
                self.on_pause(child, pause)
        if now < self._paused_until[child.name]:
            return False
        del self._paused_until[child.name]
        return True

    def _pause(self, child: Child, now: float) -> float:
        """The pause before the restart; the count starts again for a role that lived for a minute."""
        lived_long = now - child.started_at >= self.LONG_LIFE_SECONDS
        self._short_lives[child.name] = 0 if lived_long else self._short_lives.get(child.name, 0) + 1
        beyond = self._short_lives[child.name] - self.RESTARTS_AT_ONCE - 1
        return 0.0 if beyond < 0 else min(self.PAUSE_SECONDS * 2.0 ** min(beyond, 10), self.PAUSE_SECONDS_MAX)
