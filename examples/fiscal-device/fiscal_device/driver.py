"""The driver of a fiscal device.

A frame, host and product alike: 01, the length of the data + 0x20, the number, a command, the data, 05, a check sum of
all bytes from the length to 05 (their sum, as four hexadecimal digits), 03. While the device works it sends single
bytes 16; a frame that it can't read it answers by 15. Commands: `I` logs on, `P` is an operation.
"""

from collections.abc import Mapping
from typing import Any

from oldhost_sync.drivers.capabilities import Capabilities, RejectionUses, Repeats
from oldhost_sync.drivers.contract import API, Garbled, InvalidOptions, Peer
from oldhost_sync.drivers.events import (
    INCARNATION_LENGTH_MAX,
    Applied,
    Closing,
    ConnectionEnd,
    Event,
    Malformed,
    NoService,
    Ready,
    Rejected,
    Said,
    Unlisted,
    Working,
    words,
)

START, DATA_END, END, UNREADABLE, BUSY = 0x01, 0x05, 0x03, 0x15, 0x16
LOG_ON, OPERATION = ord("I"), ord("P")
LOWEST, MODULUS = 0x20, 0x80
DATA_MAX = 0xFF - 0x20  # all that the length's byte can say


def frame(number: int, command: int, data: bytes) -> bytes:
    if len(data) > DATA_MAX:
        raise ValueError("more data than a frame can have")
    summed = bytes((0x20 + len(data), number, command, *data, DATA_END))
    return bytes((START, *summed, *b"%04X" % sum(summed), END))


class FiscalWire:
    """One connection."""

    def __init__(self, peer: Peer) -> None:
        self.said: Said | None = None
        self.asked: tuple[int, int] | None = None  # the number and the command whose answer is awaited
        self.kept = b""

    def greet(self, at_ms: int) -> bytes:
        return self._ask(LOWEST, LOG_ON, b"")

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        return self._ask(number, OPERATION, body)

    def ask_expected(self, at_ms: int) -> bytes:
        raise NotImplementedError("the device can't be asked")

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        raise NotImplementedError("the device can't be asked")

    def idle(self, at_ms: int) -> bytes:
        return b""

    def bye(self, at_ms: int) -> bytes:
        return b""

    def feed(self, data: bytes) -> list[Event]:
        self.kept += data
        events: list[Event] = []
        while self.asked and self.kept:
            size = 1 if self.kept[0] in {BUSY, UNREADABLE} else _size(self.kept)
            if len(self.kept) < size:
                return events
            answer, self.kept = self.kept[:size], self.kept[size:]
            events.append(self._meaning(answer, *self.asked))
            if not isinstance(events[-1], Working):
                self.asked = None
        if self.kept:  # the device says nothing unasked
            self.kept = b""
            events.append(Closing(ConnectionEnd.STRAY))
        return events

    def end(self) -> list[Event]:
        if self.asked:
            raise Garbled("closed before the answer was complete")
        return []

    def _ask(self, number: int, command: int, data: bytes) -> bytes:
        self.said, self.asked, self.kept = None, (number, command), b""
        return frame(number, command, data)

    def _meaning(self, answer: bytes, number: int, command: int) -> Event:
        if answer[0] == BUSY:
            return Working()
        if answer[0] == UNREADABLE:
            why = "the device can't read the frame"
            return NoService("unreadable", why) if command == LOG_ON else Malformed(why)
        data = answer[4:-6]
        if answer != frame(answer[2], answer[3], data):
            raise Garbled("a frame with another check sum, or another end")
        is_ours = (answer[2], answer[3]) == (number, command)
        if command == LOG_ON:
            return (is_ours and _ready(data)) or NoService("unreadable", "no answer to a log-on")
        if is_ours and data == b"A":
            return Applied(None)
        if is_ours and data[:1] == b"E":
            return Rejected(words(data[1:]), consumed=True)
        self.said = Said("answer", words(data))
        return Unlisted("neither done nor refused" if is_ours else "the answer to something else")


def _size(begun: bytes) -> int:
    """How long the frame is that begins so, or 2, if that is not known yet."""
    if begun[0] != START or (len(begun) > 1 and begun[1] < 0x20):
        raise Garbled("no frame begins so")
    return 10 + begun[1] - 0x20 if len(begun) > 1 else 2


def _ready(data: bytes) -> Ready | None:
    """From `R`, the next number as two hexadecimal digits, `,`, an id that changes with each start."""
    numbers = {b"R%02X," % number: number for number in range(LOWEST, MODULUS)}
    start = data[4:]
    if data[:4] not in numbers or not start.isalnum() or len(start) > INCARNATION_LENGTH_MAX:
        return None
    return Ready(numbers[data[:4]], start.decode("ascii"))


class FiscalDriver:
    api = API
    schemes = ("tcp", "tls")
    answer_bytes_max = 16 * 1024  # with the bytes that say "working"
    capabilities = Capabilities(
        repeated=Repeats.LAST_ANSWER,
        rejection_uses=RejectionUses.YES,
        gapless=False,
        modulus=MODULUS,
        lowest=LOWEST,
    )

    def wire(self, peer: Peer) -> FiscalWire:
        return FiscalWire(peer)


def make_driver(options: Mapping[str, Any]) -> FiscalDriver:
    """`options`: the host's own, from the hosts file."""
    if options:
        raise InvalidOptions([((key,), "there is no such option") for key in options])
    return FiscalDriver()
