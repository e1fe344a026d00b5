"""Why OldHost's connection carries nothing more, each cause apart: what to do about them has nothing in common."""

from __future__ import annotations

from enum import StrEnum


class ConnectionEnd(StrEnum):
    """As OldHost ended it."""

    NONE = ""
    STRAY = "bytes came behind its answer"
    OLD_VERSION = "it speaks HTTP/1.0"
    ANNOUNCED = "its answer says 'Connection: close'"
    WITH_ANSWER = "its answer ends with the connection"
    QUIET = "without announcing it"


def why_hung_up(ending: ConnectionEnd, answers: int) -> tuple[str, str]:
    """The reason of an opening whose connection ended after so many answers, and a sentence: see `OpeningPostponed`."""
    if ending is ConnectionEnd.STRAY:
        return "unreadable", "bytes come behind OldHost's answer and belong to no request: look for a proxy in between"
    if ending is ConnectionEnd.QUIET and answers > 1:
        return "connection", f"OldHost closed the connection after {answers} answers"
    how = ending or ConnectionEnd.QUIET
    return "keep-alive", f"OldHost closes the connection after each answer ({how}): it must keep it open"
