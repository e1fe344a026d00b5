"""The driver of hosts that speak the frame protocol over TCP or TLS (docs/frame-protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from oldhost_sync.drivers.capabilities import (
    NUMBERS_MIN,
    AskedOutcomes,
    Capabilities,
    Expects,
    RejectionUses,
    Repeats,
    Resets,
)
from oldhost_sync.drivers.contract import API, LOCAL, InvalidOptions, Peer
from oldhost_sync.drivers.frame.frames import FRAME_BYTES_MAX
from oldhost_sync.drivers.frame.wire import FrameWire

# What a host's options may claim.
_CHOICES: Mapping[str, type[StrEnum]] = {
    "expected": Expects,
    "outcome": AskedOutcomes,
    "repeated": Repeats,
    "rejection_uses": RejectionUses,
    "resets": Resets,
}


class FrameDriver:
    """See `Driver`. `capabilities`: what the host claims; without claims, the least."""

    api = API
    schemes = ("tcp", "tls")
    # An answer and many `working` before it.
    answer_bytes_max = 2 * FRAME_BYTES_MAX

    def __init__(self, capabilities: Capabilities | None = None) -> None:
        self.capabilities = capabilities or Capabilities()

    def wire(self, peer: Peer = LOCAL) -> FrameWire:
        return FrameWire(self.capabilities, peer)


def make_driver(options: Mapping[str, Any]) -> FrameDriver:
    """See `DriverFactory`. The options are the host's claims, named as in `Capabilities`."""
    mistakes = [((key,), why) for key, value in options.items() if (why := _mistake(key, value))]
    lowest, modulus = options.get("lowest", 0), options.get("modulus")
    if not mistakes and modulus is not None and modulus - lowest < NUMBERS_MIN:
        mistakes = [(("modulus",), f"must leave {NUMBERS_MIN} numbers or more, from `lowest` to one below it")]
    if mistakes:
        raise InvalidOptions(mistakes)
    return FrameDriver(Capabilities(**{key: _value(key, value) for key, value in options.items()}))


def _mistake(key: str, value: Any) -> str:
    """What is wrong with an option; empty: nothing."""
    if key in _CHOICES:
        return "" if value in list(_CHOICES[key]) else f"must be one of {', '.join(_CHOICES[key])}"
    if key == "gapless":
        return "" if isinstance(value, bool) else "must be true or false"
    if key in ("modulus", "lowest"):
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return "" if is_number else "must be a whole number, 0 or more"
    return "there is no such option"


def _value(key: str, value: Any) -> Any:
    return _CHOICES[key](value) if key in _CHOICES else value
