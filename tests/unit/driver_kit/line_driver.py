"""A driver of lines, for the kit's own tests: small, greeting, and unlike HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oldhost_sync.drivers.capabilities import Capabilities, Expects, Repeats
from oldhost_sync.drivers.contract import API, Garbled, Peer
from oldhost_sync.drivers.events import (
    NONCE_MAX,
    Applied,
    Event,
    Expected,
    Gap,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    Said,
    Unlisted,
    Working,
    words,
)

LINE_BYTES_MAX = 256
_LINE = re.compile(
    r"READY (?P<ready>\d{1,30}) (?P<boot>\w{1,20})|WAIT()|DONE (?P<done>\d{1,30})|NO (?P<no>\d{1,30}) (?P<why>.+)"
    r"|NEXT (?P<next>\d{1,30})|OLD (?P<old>\d{1,30})"
)


class LineWire:
    """See `Wire`."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._begin(None)

    def _begin(self, number: int | None) -> None:
        self._number = number
        self._kept = b""
        self.said: Said | None = None

    def greet(self, at_ms: int) -> bytes:
        self._begin(None)
        return f"HELLO {self._peer.authorization}\n".encode()

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        self._begin(number)
        return b"DO %d %d %s\n" % (number, at_ms, body.hex().encode())

    def ask_expected(self, at_ms: int) -> bytes:
        self._begin(None)
        return b"NEXT?\n"

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        raise NotImplementedError("only the next number can be asked")

    def idle(self, at_ms: int) -> bytes:
        return b""

    def bye(self, at_ms: int) -> bytes:
        return b"BYE\n"

    def feed(self, data: bytes) -> list[Event]:
        *lines, self._kept = (self._kept + data).split(b"\n")
        if len(self._kept) > LINE_BYTES_MAX:
            raise Garbled("a line that is too long")
        return [self._meaning(line) for line in lines]

    def end(self) -> list[Event]:
        raise Garbled("closed before the line was complete")

    def _meaning(self, line: bytes) -> Event:
        event = self.read(line)
        if self._number is not None and isinstance(event, Unlisted | Gap | Replay):
            self.said = self.in_its_words(line)
        return event

    def in_its_words(self, line: bytes) -> Said | None:
        return Said("answer", words(line))

    def read(self, line: bytes) -> Event:
        """What a whole line says."""
        found = _LINE.fullmatch(line.decode("ascii", "replace"))
        if found is None:
            raise Garbled("a line that the protocol does not have")
        match found.groupdict():
            case {"ready": str(number), "boot": str(boot)}:
                return Ready(in_range(number), boot)
            case {"done": str(number)}:
                return self.applied(int(number))
            case {"no": str(number), "why": str(why)}:
                is_ours = int(number) == self._number
                return Rejected(why, consumed=True) if is_ours else Unlisted("another number is refused")
            case {"next": str(number)}:
                return self.next_is(number)
            case {"old": str(number)}:
                return Replay(in_range(number), None)
        return Working()

    def applied(self, number: int) -> Event:
        return Applied(number + 1) if number == self._number else Unlisted("another number is done")

    def next_is(self, number: str) -> Event:
        expected = in_range(number)
        if self._number is not None:
            return Unlisted("a gap beyond what can be counted") if expected is None else Gap(expected)
        return OutOfRange(number) if expected is None else Expected(expected)


def in_range(number: str) -> int | None:
    return int(number) if int(number) <= NONCE_MAX else None


CAPABILITIES = Capabilities(expected=Expects.USED, repeated=Repeats.REFUSED)


@dataclass
class LineDriver:
    """See `Driver`."""

    api: int = API
    schemes: tuple[str, ...] = ("tcp", "tls")
    capabilities: Capabilities = CAPABILITIES
    answer_bytes_max: int = 16 * 1024
    kind: type[LineWire] = LineWire

    def wire(self, peer: Peer) -> LineWire:
        return self.kind(peer)
