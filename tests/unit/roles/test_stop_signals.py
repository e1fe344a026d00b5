"""The signals at which a role ends in order."""

from __future__ import annotations

import signal

import pytest

from oldhost_sync.roles.process import stop_signals


@pytest.mark.parametrize(("before", "stops"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["usual", "nohup"])
def test_a_closed_terminal_ends_a_role_unless_it_was_told_to_ignore_that(before: signal.Handlers, stops: bool) -> None:
    kept = signal.signal(signal.SIGHUP, before)
    try:
        assert (signal.SIGHUP in stop_signals()) is stops
    finally:
        signal.signal(signal.SIGHUP, kept)
