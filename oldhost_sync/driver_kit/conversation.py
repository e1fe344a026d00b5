"""A driver speaks with a model of its host, without faults and without the product: to compare what it claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oldhost_sync.driver_kit.mistake import Mistake
from oldhost_sync.driver_kit.virtual_host import VirtualHost
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, Repeats
from oldhost_sync.drivers.contract import Driver, Garbled, Peer
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    Closing,
    Event,
    Expected,
    OutcomeTold,
    Ready,
    Replay,
    Unlisted,
    Write,
)


class Conversation:
    """`heard`: the bytes of the last answer."""

    def __init__(self, driver: Driver, peer: Peer, model: VirtualHost) -> None:
        self._driver, self._peer, self._can = driver, peer, driver.capabilities
        self.model = model
        self.heard = b""
        self.log_on()

    def log_on(self) -> None:
        """A new connection."""
        self._wire, self._is_over = self._driver.wire(self._peer), False
        at_once, request = self.model.connected(), self._wire.greet(0)
        self._ready = [*self._fed(at_once), *self._written(request)]

    def expected(self) -> int | None:
        """The number that the host says it wants next, at the log-on or asked; None: it does not say."""
        ready = next((event.expected for event in self._ready if isinstance(event, Ready)), None)
        self._ready = []  # it was said once, before the next operation
        if ready is not None:
            return ready
        if self._can.expected is not Expects.NEVER:
            events = self._asked()
            return next((event.nonce for event in events if isinstance(event, Expected)), None)
        if self._can.outcome is AskedOutcomes.LAST:
            events = self._written(self._wire.ask_outcome(self._can.lowest, "", 0))
            last = next((event.number for event in events if isinstance(event, OutcomeTold)), None)
            return None if last is None else following(last, self._can)
        return None

    def first(self) -> int:
        """The number to begin with. Raises Mistake."""
        number = self.expected()
        if number is None:
            raise Mistake("neither the model's log-on nor a question tells which number is next")
        return number

    def send(self, number: int, body: bytes) -> list[Event]:
        """The events of an operation."""
        if self._is_over:
            self.log_on()
        self._ready, self.heard = [], b""
        return self._written(self._wire.operation(number, body, 0))

    def reads(self, number: int, body: bytes, answer: bytes) -> list[Event]:
        """The events of this answer, if an operation is asked for with this number. The model hears nothing."""
        self._wire.operation(number, body, 0)
        return self._fed(answer)

    def repeated(self, number: int, body: bytes) -> tuple[Repeats | None, list[Event]]:
        """What an operation gets that was sent before, with its events; None: nothing that can be claimed."""
        before = len(self.model.done)
        events = self.send(number, body)
        if len(self.model.done) > before:
            return Repeats.DONE_TWICE, events
        if any(isinstance(event, Replay | Banned) for event in events):
            return (Repeats.PUNISHED if self._is_banned() else Repeats.REFUSED), events
        return (Repeats.LAST_ANSWER if is_applied(events) else None), events

    def _is_banned(self) -> bool:
        self.log_on()
        asked = [] if self._can.expected is Expects.NEVER else self._asked()
        return any(isinstance(event, Banned) for event in (*self._ready, *asked))

    def _asked(self) -> list[Event]:
        if self._is_over:
            self.log_on()
        return self._written(self._wire.ask_expected(0))

    def _written(self, request: bytes) -> list[Event]:
        """What the host answers."""
        answer = self.model.received(request) if request else b""
        self.heard += answer
        events = self._fed(answer)
        for event in events:
            if isinstance(event, Write):
                events += self._written(event.data)
        self._is_over |= any(isinstance(event, Closing) for event in events)
        return events

    def _fed(self, data: bytes) -> list[Event]:
        try:
            return self._wire.feed(data) if data else []
        except Garbled as error:
            return [Unlisted(f"garbled: {error}")]


def is_applied(events: list[Event]) -> bool:
    return any(isinstance(event, Applied) for event in events)


def following(number: int, can: Capabilities, steps: int = 1) -> int:
    """The number so many steps later."""
    distance = number - can.lowest + steps
    return can.lowest + (distance if can.modulus is None else distance % (can.modulus - can.lowest))


def names_number(answers: Mapping[int, bytes]) -> bool:
    """Whether answers that belong to these numbers have each its number at one and the same place."""
    for written in _WRITTEN:
        places = [
            {place for place in range(len(answer)) if answer.startswith(written(number), place)}
            for number, answer in answers.items()
        ]
        if set.intersection(*places):
            return True
    return False


# How a number may be written.
_WRITTEN: tuple[Callable[[int], bytes], ...] = (
    lambda number: b"%d" % number,
    lambda number: b"%X" % number,
    lambda number: b"%x" % number,
    lambda number: number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big"),
)
