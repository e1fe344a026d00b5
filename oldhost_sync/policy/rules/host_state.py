"""The state of a host's writer in one word, from what the database and the relay know."""

from __future__ import annotations

from typing import Literal, get_args

HostState = Literal["sending", "waiting", "banned", "paused", "halted", "no-writer"]
HOST_STATES: tuple[HostState, ...] = get_args(HostState)


def host_state(*, halted: bool, paused: bool, banned: bool, writer_runs: bool, fates_came: bool) -> HostState:
    """The first of these states that applies. `fates_came`: since the last check; without any, the writer is waiting.

    A halt, a pause and a ban are in the database, and apply whether or not a writer runs.
    """
    if halted:
        return "halted"
    if paused:
        return "paused"
    if banned:
        return "banned"
    if not writer_runs:
        return "no-writer"
    return "sending" if fates_came else "waiting"
