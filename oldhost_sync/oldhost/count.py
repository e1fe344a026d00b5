"""OldHost's count as it is now: what an operator's decision about a halt begins from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """The nonce that OldHost expects. None: it could not be asked, and `why`."""

    nonce: int | None
    why: str = ""


NOT_ASKED = Count(None, "nobody here can ask it")
