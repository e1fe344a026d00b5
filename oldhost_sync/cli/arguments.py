"""What several commands take: who acts and why, an entity, how many lines. Needs neither the database nor Temporal."""

from __future__ import annotations

import getpass
import re
from typing import Annotated

import typer

from oldhost_sync.policy.limits import NAME_PATTERN, PAUSE_SECONDS_MAX
from oldhost_sync.policy.rules.operator_act import Actor, at_the_terminal
from oldhost_sync.user_errors import WRONG, CliError

Reason = Annotated[str, typer.Option("--reason", "-r", help="The reason; it is recorded in the audit.")]
Operator = Annotated[
    str | None, typer.Option("--operator", help="Your name; by default your user name on this machine.")
]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")]

_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_TYPE_AND_ID = re.compile(f"({NAME_PATTERN})/(.+)")


def reason_of(given: str) -> str:
    """Why somebody acts, for the audit; never blank."""
    reason = given.strip()
    if not reason:
        raise CliError("say why: --reason '…'. It is recorded.", WRONG)
    return reason


def seconds_of(option: str, duration: str) -> int:
    """`90s`, `40m`, `2h` or `1d`, in seconds; at most as long as a pause may last."""
    match = _DURATION.fullmatch(duration)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= PAUSE_SECONDS_MAX:
        raise CliError(f"{option} {duration} is not a duration of up to 31d, such as 90s, 40m, 2h or 1d.", WRONG)
    return seconds


def operator_of(given: str | None) -> Actor:
    """Who acts, for the audit."""
    return at_the_terminal(operator_name(given))


def operator_name(given: str | None) -> str:
    """Who acts: as given, or the user of this machine."""
    if given:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise CliError("say who you are: --operator NAME.", WRONG) from None


def entity_of(text: str) -> tuple[str, str]:
    """`type/id`, or the id of a unit."""
    match = _TYPE_AND_ID.fullmatch(text)
    return (match[1], match[2]) if match else ("unit", text)
