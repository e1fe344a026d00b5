"""The one word for what a host's writer does now, from what the database and the relay know of it."""

from __future__ import annotations

from typing import Literal, get_args

HostState = Literal["sending", "waiting", "banned", "paused", "halted", "no-writer"]
HOST_STATES: tuple[HostState, ...] = get_args(HostState)


def host_state(*, halted: bool, paused: bool, banned: bool, writer_runs: bool, fates_came: bool) -> HostState:
    """The first of these that is so. `fates_came`: since the look before; a writer with nothing to send is waiting.

    A halt, a pause and a ban are in the database, and hold whether or not a writer runs.
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
