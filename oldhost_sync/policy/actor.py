"""Who acts: the name, by which channel it came, and whether anybody has checked that the name is true."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    """The way an act came. `command-line` and `temporal` are what its sender says, or nothing more is known."""

    API = "api"
    CONSOLE = "console"
    COMMAND_LINE = "command-line"
    TEMPORAL = "temporal"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Actor:
    """`verified`: the API has checked the token of this name; None: it is nobody's name. `doubt`: why a name that came
    through Temporal is not verified.
    """

    name: str
    channel: Channel
    verified: bool | None
    doubt: str = ""


def at_the_terminal(name: str) -> Actor:
    """Who types a command: whoever may, says who they are."""
    return Actor(name, Channel.COMMAND_LINE, verified=False)
