"""A send's place among the others of its session, and what it may do when its turn comes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto


class SendStep(Enum):
    """What a waiting send may do now."""

    SEND = auto()  # it holds the wire
    MARK = auto()  # the operation before its first one is on the wire: mark its first one now
    RESERVE = auto()  # its nonces were given back: reserve again
    OVER = auto()  # the session ended


@dataclass(slots=True, eq=False)
class Place:
    """A send's place among the others. `sequence`: its position among the ordinary ones, or among the urgent ones (0:
    none, at once). `until`: it sends nothing after this. `reserved`: everything that it still has to send has a nonce.
    """

    sequence: int = 0
    urgent: bool = False
    until: float = math.inf
    reserved: bool = False
