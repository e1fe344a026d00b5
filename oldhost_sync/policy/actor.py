"""Who acts: the name, the channel through which the act arrived, and whether the name was verified."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    """How an act arrived. `command-line` and `temporal` are unproven: the sender says so, or nothing else is known."""

    API = "api"
    CONSOLE = "console"
    COMMAND_LINE = "command-line"
    TEMPORAL = "temporal"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Actor:
    """`verified`: the API has checked the token of this name; None: it is not a person's name. `doubt`: why a name that
    arrived through Temporal is not verified.
    """

    name: str
    channel: Channel
    verified: bool | None
    doubt: str = ""


def at_the_terminal(name: str) -> Actor:
    """The actor of a typed command: anyone who may run commands can give any name."""
    return Actor(name, Channel.COMMAND_LINE, verified=False)
