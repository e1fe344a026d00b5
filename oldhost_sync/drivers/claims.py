"""Which events a driver may give: those that fit its capabilities, the contract's limits and the request.

What is not declared proves nothing: recovery decides by the capabilities alone.
"""

from __future__ import annotations

import math

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.events import (
    INCARNATION_LENGTH_MAX,
    NONCE_MAX,
    RETRY_AFTER_SECONDS_MAX,
    Ambiguous,
    Applied,
    Event,
    Expected,
    Gap,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
)


def undeclared(event: Event, capabilities: Capabilities) -> str:
    """Why a driver with these capabilities may not give this event; empty: it may."""
    kind = type(event).__name__
    number, seconds = _number(event), getattr(event, "retry_after", None)
    if number is not None and not _in_range(number, capabilities):
        return f"{kind} with a number that the host can't have"
    if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= RETRY_AFTER_SECONDS_MAX):
        return f"{kind} with a pause that is negative or longer than a day"
    if isinstance(event, Ready) and len(event.incarnation) > INCARNATION_LENGTH_MAX:
        return f"{kind} with an incarnation of more than {INCARNATION_LENGTH_MAX} characters"
    return f"{kind} {why}" if (why := _against(event, capabilities)) else ""


def _against(event: Event, capabilities: Capabilities) -> str:
    """What of the capabilities the event contradicts."""
    match event:
        case Ambiguous():
            return "is what no driver says"
        case Expected() | OutOfRange() if capabilities.expected is Expects.NEVER:
            return "comes from a host whose expected number can't be asked"
        case OutcomeTold() if capabilities.outcome is AskedOutcomes.NEVER:
            return "comes from a host whose outcomes can't be asked"
        case Gap() if not capabilities.gapless:
            return "comes from a host whose numbers may have gaps"
        case Replay() if capabilities.repeated is Repeats.DONE_TWICE:
            return "comes from a host that does a repeated number twice"
        case Rejected(consumed=True) if capabilities.rejection_uses is RejectionUses.NO:
            return "uses its number, and is declared not to"
        case Rejected(consumed=False) if capabilities.rejection_uses is RejectionUses.YES:
            return "leaves its number free, and is declared to use it"
    return ""


def _number(event: Event) -> int | None:
    """The number in it that the ledger would count from."""
    match event:
        case Applied(expected) | Gap(expected) | Replay(expected) | Ready(expected):
            return expected
        case Expected(nonce):
            return nonce
        case OutcomeTold(number=number):
            return number
    return None


def _in_range(number: int, capabilities: Capabilities) -> bool:
    least, most = (0, NONCE_MAX) if capabilities.modulus is None else (capabilities.lowest, capabilities.modulus - 1)
    return least <= number <= most
