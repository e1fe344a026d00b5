"""The simulator's one thread: in which order it does what has come together."""

from __future__ import annotations

import socket

from oldhost_simulator.loop import Clock, Loop


def test_what_is_due_comes_before_what_has_just_arrived() -> None:
    """Else a busy machine would let a late apply come after the operation that waited for its time to be over."""
    loop = Loop(Clock())
    seen: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")

        def arrived() -> None:
            seen.append("arrived")
            loop.unwatch(ours)

        loop.watch(ours, arrived)
        loop.timers.at(loop.clock.now() - 1, lambda: seen.append("due"))
        loop._run_once()
    loop.close()
    assert seen == ["due", "arrived"]
