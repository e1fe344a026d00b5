"""Batches from the relay: all are taken over, few at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS
from workflows.messages import to_wire
from workflows.reception import BATCHES_AT_ONCE_MAX, Relayed


def signal(items: Iterable[Any]) -> RawValue:
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps({"refs": list(items)}).encode()))


def change(number: int) -> Any:
    return to_wire(ChangeRef(number, PriorityClass.TXN, "unit", f"u{number}", "e", START_MS))


def relayed(batches: int) -> tuple[Relayed, Machine]:
    machine = Machine(WriterPolicy(), START_MS)
    relayed = Relayed(machine)
    for number in range(1, batches + 1):
        relayed.add(signal([change(number)]))
    return relayed, machine


def test_many_batches_are_taken_over_a_few_at_a_time() -> None:
    many, machine = relayed(2 * BATCHES_AT_ONCE_MAX + 1)
    sizes = []
    while many.waiting:
        many.take(START_MS)
        sizes.append(len(machine.coalescer.waiting))
    assert sizes == [BATCHES_AT_ONCE_MAX, 2 * BATCHES_AT_ONCE_MAX, 2 * BATCHES_AT_ONCE_MAX + 1]


def test_what_cannot_be_read_is_counted() -> None:
    few, machine = relayed(0)
    few.add(signal([change(1), "no ref", 7]))
    assert few.take(START_MS) == 2
    assert len(machine.coalescer.waiting) == 1
