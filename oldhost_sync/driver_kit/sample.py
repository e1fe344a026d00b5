"""Samples: exchanges as they are on the wire, and how a driver is led through one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects
from oldhost_sync.drivers.contract import Driver, Peer, Wire
from oldhost_sync.drivers.events import Event, Said


@dataclass(frozen=True, slots=True)
class Operation:
    """See `Wire.operation`."""

    number: int
    body: bytes
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class AskExpected:
    """See `Wire.ask_expected`."""

    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """See `Wire.ask_outcome`."""

    number: int
    key: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Greet:
    """See `Wire.greet`."""

    at_ms: int = 0


Request = Operation | AskExpected | AskOutcome | Greet


@dataclass(frozen=True, slots=True)
class Sample:
    """One exchange, best copied from the host's manual or a recording.

    `written`: the request's bytes. `answer`: the whole answer, with no byte behind it; `ends`: the host then closes the
    connection, which belongs to the answer. `events`: what the wire makes of both. `names_number`: the answer says to
    which number it belongs.
    """

    name: str
    request: Request
    written: bytes
    answer: bytes
    events: tuple[Event, ...]
    ends: bool = False
    names_number: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """What a wire made of bytes. `said`: see `Wire.said`."""

    events: tuple[Event, ...]
    said: Said | None


def wire_for(driver: Driver, peer: Peer, greeting: Sample | None, request: Request) -> Wire:
    """A wire on which `request` may be made: greeted, unless that is the request."""
    wire = driver.wire(peer)
    if greeting is not None and not isinstance(request, Greet):
        wire.greet(0)
        wire.feed(greeting.answer)
    return wire


def written(wire: Wire, request: Request) -> bytes:
    """The bytes of `request`."""
    match request:
        case Operation(number, body, at_ms):
            return wire.operation(number, body, at_ms)
        case AskOutcome(number, key, at_ms):
            return wire.ask_outcome(number, key, at_ms)
        case AskExpected(at_ms):
            return wire.ask_expected(at_ms)
        case Greet(at_ms):
            return wire.greet(at_ms)


def fed(wire: Wire, pieces: Iterable[bytes], *, ends: bool) -> Read:
    """Feed the pieces, and the end of the connection. Raises what the wire raises."""
    events: list[Event] = []
    for piece in pieces:
        if piece:
            found = wire.feed(piece)
            events += found
            found.clear()  # it is ours: the wire keeps nothing in it
    if ends:
        events += wire.end()
    return Read(tuple(events), wire.said)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` in pieces, cut at `places`, which rise."""
    bounds = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def is_declared(request: Request, capabilities: Capabilities) -> bool:
    """Whether a driver with these capabilities makes such a request."""
    match request:
        case AskExpected():
            return capabilities.expected is not Expects.NEVER
        case AskOutcome():
            return capabilities.outcome is not AskedOutcomes.NEVER
    return True
