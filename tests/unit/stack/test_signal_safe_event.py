"""An event that a signal handler may set."""

import threading

import pytest

from oldhost_sync.stack.processes import SignalSafeEvent
from tests.signals_at_each_line import run_with_signals

SECONDS_MAX = 10.0
SET_WHILE_WAITING = """
from oldhost_sync.stack.processes import SignalSafeEvent

event = SignalSafeEvent()
signal.signal(signal.SIGTERM, lambda *_: event.set())
signal_at_each_line(sys._getframe())
is_set = event.wait(10)
no_more_signals()
sys.exit(0 if is_set else "it was not set")
"""


def test_it_is_not_set_at_first() -> None:
    event = SignalSafeEvent()
    assert not event.is_set()
    assert not event.wait(0.001)


def test_once_set_it_stays_set() -> None:
    event = SignalSafeEvent()
    event.set()
    assert [event.wait(SECONDS_MAX), event.wait(SECONDS_MAX), event.is_set()] == [True, True, True]


def test_another_thread_ends_a_wait() -> None:
    event = SignalSafeEvent()
    threading.Thread(target=event.set).start()
    assert event.wait(SECONDS_MAX)


@pytest.mark.processes
def test_a_signal_at_any_line_of_a_wait_sets_it() -> None:
    assert run_with_signals(SET_WHILE_WAITING) == ""
