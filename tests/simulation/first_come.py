"""First come, first served among the emergencies that one session sends (I15): the writer gives them out by their ids,
and no urgent send asks for nonces before the urgent sends that were given out earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.machine.actions import Action, Send
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.store.ledger.reservation import CANDIDATES

_ASKS = CANDIDATES.split("{ids}", maxsplit=1)[0].split("; ")[-1]


@dataclass
class _GivenOut:
    """An urgent send under way. `owed`: its emergencies that still have to ask for a nonce."""

    send: Send
    since: float
    emergencies: tuple[int, ...]
    owed: dict[int, None]


class FirstCome:
    """What urgent sends are under way, and which of their emergencies have no nonce yet."""

    def __init__(self, always: Any) -> None:
        self._always = always
        self._sends: dict[int, _GivenOut] = {}  # by the machine's number
        self._known: dict[tuple[int, int], None] = {}  # by epoch and number: a replay decides the same again

    def decided(self, machine: Machine, decided: Sequence[Action], oldest_left: int | None) -> None:
        """`oldest_left`: the oldest emergency that could go and was not given out."""
        newest = 0
        for action in decided:
            if not (isinstance(action, Send) and action.urgent):
                continue
            ids = self._emergencies(machine, action)
            if list(ids) != sorted(ids) or min(ids, default=newest) < newest:
                self._always.fail(f"I15: emergencies {ids} go in another order than they came, or after {newest}")
            newest = max(ids, default=newest)
            self._give_out(action, ids)
        if oldest_left is not None and oldest_left < newest:
            self._always.fail(f"I15: emergency {newest} goes while the older {oldest_left} could")

    @staticmethod
    def _emergencies(machine: Machine, send: Send) -> tuple[int, ...]:
        """Without those that were bound when the session began: they keep their nonces."""
        found = [
            entry.ref
            for one in send.change_ids
            if one not in machine.in_flight.bound and (entry := machine.in_flight.get(one)) is not None
        ]
        return tuple(ref.change_id for ref in found if ref.priority_class is PriorityClass.EMERGENCY)

    def _give_out(self, send: Send, emergencies: tuple[int, ...]) -> None:
        """What an earlier session was given is over: it has given back what it did not send."""
        if (send.epoch, send.number) not in self._known:
            self._known[send.epoch, send.number] = None
            now = self._always.world.hub.now
            self._sends = {number: each for number, each in self._sends.items() if each.send.epoch == send.epoch}
            self._sends[send.number] = _GivenOut(send, now, emergencies, dict.fromkeys(emergencies))

    def ended(self, number: int) -> None:
        """The writer knows that it ended: what was not sent waits again."""
        self._sends.pop(number, None)

    def gave_back(self, change_id: int) -> None:
        """It has lost its nonce, and has to ask again before those that were given out later."""
        for each in self._sends.values():
            if change_id in each.emergencies:
                each.owed[change_id] = None

    def statement(self, statement: str, values: tuple[Any, ...]) -> None:
        """A send asks the ledger for nonces."""
        if not statement.startswith(_ASKS):
            return
        asking = [each for each in self._sends.values() if not each.owed.keys().isdisjoint(values[1:])]
        for each in asking:
            self._check(each)
        for each in asking:
            for change_id in values[1:]:
                each.owed.pop(change_id, None)

    def _check(self, asking: _GivenOut) -> None:
        """A send whose time is over gives back the rest and asks no more; what it had waits in the writer again."""
        over_before = self._always.world.hub.now - SessionLimits().send_seconds
        for other in self._sends.values():
            earlier = other.send.epoch == asking.send.epoch and other.send.number < asking.send.number
            if earlier:
                self._always.world.sometimes.hit("an urgent send behind another one")
            if earlier and other.owed and other.since > over_before:
                self._always.fail(
                    f"I15: emergencies {list(asking.owed)} ask for nonces before {list(other.owed)}, which came first"
                )
