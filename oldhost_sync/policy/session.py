"""The session as the machine knows it: which phase it is in, and what a send over it needs to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """NONE → OPENING → OPEN → CLOSING → NONE; OPENING → PAUSING (told to wait) → OPENING."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    PAUSING = "pausing"


@dataclass
class Session:
    """`lost`: send no more, end it when nothing is in flight. `sends`: how many so far. `attempts`: in a row without success.

    `opened_at_nonce`: what OldHost expected then. What it expects next, only the ledger knows.
    `fruitless`: sessions in a row that began with an operation in doubt, and none came to its end.
    """

    phase: Phase = Phase.NONE
    epoch: int = 0
    task_queue: str = ""
    opened_at_nonce: int = 0
    sends: int = 0
    until_ms: int = 0
    waiting_for: str = ""
    attempts: int = 0
    lost: bool = False
    more_bound: bool = False
    fruitless: int = 0
