"""Children: never outlive us, stop in reverse order, and are heard when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oldhost_sync.stack import processes
from oldhost_sync.stack.processes import Child, ChildDied, ChildSilent, ProcessError, StopRequested, Supervisor
from tests.signals_at_each_line import run_with_signals

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 10.0
WAITS = "import signal, sys; print('up', flush=True); signal.pause()"
TELLS_ITS_END = (
    "import signal, sys\n"
    "def end(*_):\n    open(sys.argv[1], 'a').write(sys.argv[2] + '\\n'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end); print('up', flush=True)\n"
    "while True: signal.pause()"
)


def child(tmp_path: Path, code: str, *arguments: str, name: str = "child") -> Child:
    return Child(name, [sys.executable, "-c", code, *arguments], tmp_path / "logs" / f"{name}.log")


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline, "it did not come about"


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_a_child_that_dies_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    one = child(tmp_path, "print('all well'); raise SystemExit('no such table')")
    one.start()
    with pytest.raises(ChildDied, match=r"child ended \(exit code 1\)(?s:.*)no such table"):
        one.wait_until(lambda: False, SECONDS_MAX)


def test_an_end_that_is_waited_for_may_come_between_two_looks(tmp_path: Path) -> None:
    """Ready is: it has ended. It ends after the first look at that."""
    one = child(tmp_path, "pass")
    one.start()
    looks: list[bool] = []

    def has_ended() -> bool:
        looks.append(bool(looks))
        one.wait(SECONDS_MAX)
        return looks[-1]

    one.wait_until(has_ended, SECONDS_MAX)
    assert looks[:2] == [False, True]


def test_a_child_that_is_never_ready_is_told(tmp_path: Path) -> None:
    one = child(tmp_path, WAITS)
    one.start()
    with pytest.raises(ChildSilent, match=r"not ready after 0\.05 s"):
        one.wait_until(lambda: False, 0.05)
    one.kill()


def test_a_child_that_does_not_listen_is_ended_by_force(tmp_path: Path) -> None:
    one = child(
        tmp_path,
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()",
    )
    one.start()
    one.wait_until(lambda: "up" in one.said(), SECONDS_MAX)
    one.stop(seconds=0.05)
    assert one.how_it_ended() == "signal SIGKILL"


def test_grandchildren_go_with_their_parent(tmp_path: Path) -> None:
    start = f"p = subprocess.Popen([sys.executable, '-c', {WAITS!r}], stdout=subprocess.DEVNULL)"
    code = f"import subprocess, sys; {start}; print(p.pid, flush=True); p.wait()"
    one = child(tmp_path, code)
    one.start()
    one.wait_until(lambda: "\n" in one.said(), SECONDS_MAX)
    grandchild = int(one.said())
    one.kill()
    until(lambda: is_gone(grandchild))


def test_children_die_with_us_even_by_kill_9(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom oldhost_sync.stack.processes import Child\n"
        f"one = Child('child', [sys.executable, '-c', {WAITS!r}], Path(sys.argv[1]))\n"
        "one.start(); print(one.pid, flush=True); one.wait(60)"
    )
    us = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, cwd=ROOT)
    assert us.stdout is not None
    pid = int(us.stdout.readline())
    us.send_signal(signal.SIGKILL)
    us.wait()
    us.stdout.close()
    until(lambda: is_gone(pid))


def test_children_stop_in_the_reverse_of_their_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    supervisor = Supervisor()
    for name in ("server", "api", "worker"):
        one = supervisor.add(child(tmp_path, TELLS_ITS_END, str(order), name, name=name))
        one.wait_until(lambda one=one: "up" in one.said(), SECONDS_MAX)  # type: ignore[misc]
    supervisor.stop()
    assert order.read_text().split() == ["worker", "api", "server"]


def test_a_role_that_is_killed_is_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(on_restart=lambda one: told.append(one.how_it_ended()))
    one = supervisor.add(child(tmp_path, WAITS), restart=True)
    first = one.pid
    one.kill()
    supervisor.poll()
    assert one.running
    assert one.pid != first
    assert told == ["signal SIGKILL"]
    supervisor.stop()
    assert not one.running


def test_a_role_that_dies_again_and_again_is_started_after_growing_pauses_and_told_of(tmp_path: Path) -> None:
    pauses: list[float] = []
    clock = [time.monotonic()]
    supervisor = Supervisor(on_pause=lambda _, seconds: pauses.append(seconds), monotonic=lambda: clock[0])
    one = supervisor.add(child(tmp_path, "raise SystemExit('no database')"), restart=True)
    for _ in range(Supervisor.RESTARTS_AT_ONCE + 3):
        one.wait(SECONDS_MAX)
        first = one.pid
        supervisor.poll()
        if one.pid == first:  # it is pausing
            clock[0] += pauses[-1]
            supervisor.poll()
        assert one.pid != first
    assert pauses == [1.0, 2.0, 4.0]
    supervisor.stop()


def test_a_role_that_lived_for_a_minute_is_started_at_once(tmp_path: Path) -> None:
    pauses: list[float] = []
    supervisor = Supervisor(on_pause=lambda _, seconds: pauses.append(seconds))
    one = supervisor.add(child(tmp_path, "raise SystemExit(1)"), restart=True)
    for _ in range(Supervisor.RESTARTS_AT_ONCE + 3):
        one.wait(SECONDS_MAX)
        one.started_at -= Supervisor.LONG_LIFE_SECONDS
        supervisor.poll()
    assert pauses == []
    supervisor.stop()


def test_a_log_that_grows_large_is_rotated_while_its_process_writes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 10)
    code = (
        "import sys; print('a long line', flush=True); sys.stdin = open(sys.argv[1]); sys.stdin.read(); print('then', "
        "flush=True); " + WAITS
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    supervisor = Supervisor()
    one = supervisor.add(child(tmp_path, code, str(pipe)), restart=True)
    one.wait_until(lambda: "a long line\n" in one.said(), SECONDS_MAX)
    supervisor.poll()
    assert one.log.read_bytes() == b""
    assert "a long line" in one.log.with_suffix(".log.1").read_text()
    pipe.write_text("go on")
    one.wait_until(lambda: "up\n" in one.said(), SECONDS_MAX)
    assert one.log.read_text() == "then\nup\n"
    supervisor.stop()


def test_a_server_that_ends_ends_the_watch(tmp_path: Path) -> None:
    supervisor = Supervisor()
    supervisor.add(child(tmp_path, "raise SystemExit(3)")).wait(SECONDS_MAX)
    with pytest.raises(ChildDied, match="exit code 3"):
        supervisor.watch()
    supervisor.stop()


def test_a_child_is_not_started_twice(tmp_path: Path) -> None:
    one = child(tmp_path, WAITS)
    one.start()
    with pytest.raises(ProcessError, match="is already running"):
        one.start()
    one.kill()


def test_being_told_to_end_breaks_off_what_waits_for_a_child(tmp_path: Path) -> None:
    one = child(tmp_path, WAITS)
    one.start()
    one.ended.set()
    with pytest.raises(StopRequested, match="while waiting for child"):
        one.wait_until(lambda: False, SECONDS_MAX)
    one.kill()


ENDED_WHILE_IT_WATCHES = """
from oldhost_sync.stack.processes import Supervisor

supervisor = Supervisor()
signal.signal(signal.SIGTERM, lambda *_: supervisor.ended.set())
signal_at_each_line(sys._getframe())
supervisor.watch()
no_more_signals()
"""


def test_a_signal_at_any_line_of_a_supervisors_watch_ends_it() -> None:
    assert run_with_signals(ENDED_WHILE_IT_WATCHES) == ""
