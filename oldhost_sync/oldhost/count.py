"""OldHost's current count, on which an operator's decision about a halt is based."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """The nonce that OldHost expects. None: it could not be asked; `why` has the reason."""

    nonce: int | None
    why: str = ""


NOT_ASKED = Count(None, "this process can't ask it")
