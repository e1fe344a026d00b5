"""The simulator's hosts as models for the kit: their rules and dialects, without a port, a clock or faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from oldhost_simulator.behaviour import OLDHOST, Behaviour
from oldhost_simulator.call import Call
from oldhost_simulator.dialects.dialect import Dialect
from oldhost_simulator.dialects.frame import FRAMES
from oldhost_simulator.host import Host, InjectedEvent, Rejection

REFUSED = b'{"idempotency_key":"refused"}'


class Faultless:
    """See `FaultSource`. One body is refused."""

    def injected_events(self, call: Call) -> Sequence[InjectedEvent]:
        return ()

    def busy_seconds(self, call: Call) -> float | None:
        return None

    def rejection(self, call: Call) -> Rejection | None:
        return Rejection("no") if compact(call.body) == REFUSED else None


class SimulatedHost:
    """See `VirtualHost`."""

    dialect: Dialect = FRAMES
    behaviour: Behaviour = OLDHOST
    first_nonce = 501

    def __init__(self) -> None:
        self._host = Host(first_nonce=self.first_nonce, behaviour=self.behaviour)
        self._host.started(0.0)
        self._reader = self.dialect.reader(1, check_operations=False)

    @property
    def done(self) -> list[bytes]:
        return [compact(entry.body) for entry in self._host.journal if entry.outcome == "applied"]

    def connected(self) -> bytes:
        self._reader = self.dialect.reader(1, check_operations=False)
        return b""

    def received(self, data: bytes) -> bytes:
        self._reader.feed(data)
        answers = b""
        while (call := self._reader.next_call(0.0)) is not None:
            if call.kind in {"idle", "bye"}:
                continue
            decision = self._host.decide(call, 0.0, Faultless())
            for fact in decision.facts:
                self._host.apply(fact)
            answers += self.dialect.encode(self.dialect.answer(decision.verdict))
        return answers


def compact(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def model(first_nonce: int = 501, **behaviour: Any) -> type[SimulatedHost]:
    """A host of frames that behaves so."""
    return type("Model", (SimulatedHost,), {"behaviour": Behaviour(**behaviour), "first_nonce": first_nonce})
