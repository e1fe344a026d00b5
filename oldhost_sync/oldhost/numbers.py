"""How a host counts what the ledger counts. The ledger's nonce never begins anew; a host's number may, and may wrap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.drivers.events import Applied, Expected, Gap, OutcomeTold, Replay

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Numbering:
    """The host's number is the nonce less `base`; with `modulus`, after the highest number comes `lowest`."""

    base: int = 0
    modulus: int | None = None
    lowest: int = 0

    @staticmethod
    def of(can: Capabilities, base: int) -> Numbering:
        return Numbering(base, can.modulus, can.lowest)

    def number(self, nonce: int) -> int:
        """As the host counts."""
        distance = nonce - self.base - self.lowest
        return self.lowest + (distance if self.modulus is None else distance % (self.modulus - self.lowest))

    def nonce(self, number: int, near: int | None) -> int:
        """As the ledger counts. Of the nonces that have this number it is the one nearest to `near`: at most two are in
        doubt, and there are eight numbers or more. None: the first number that the host ever told.
        """
        if self.modulus is None or near is None:
            return number + self.base
        numbers = self.modulus - self.lowest
        distance = (number - self.number(near) + numbers // 2) % numbers - numbers // 2
        return near + distance

    def told(self, event: T, near: int | None) -> T:
        """What a host says, with its number as the ledger counts."""
        match event:
            case Applied(expected=int(number)) | Gap(expected=number) | Replay(expected=int(number)):
                return replace(event, expected=self.nonce(number, near))
            case Expected(nonce=number):
                return replace(event, nonce=self.nonce(number, near))
            case OutcomeTold(number=int(number)):
                return replace(event, number=self.nonce(number, near))
        return event


IDENTITY = Numbering()
