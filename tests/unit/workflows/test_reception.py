"""Reception: thousands of signals in one task are kept as they come, and read some at a pass."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS
from workflows.intake import signal_key
from workflows.messages import WriterInput
from workflows.reception import READ_AT_ONCE_MAX, READ_BYTES_MAX, Reception


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> Reception:
    """Of a run that follows another one, and has nothing to recover."""
    info = SimpleNamespace(run_id="run", original_execution_run_id="run", continued_run_id="before")
    monkeypatch.setattr("workflows.reception.workflow.info", lambda: info)
    monkeypatch.setattr("workflows.reception.workflow.in_workflow", lambda: False)
    monkeypatch.setattr("workflows.reception.now_ms", lambda: START_MS)
    return Reception(Machine(WriterPolicy(), START_MS), lambda: None, WriterInput("oldhost"))


def change(number: int, size: int = 0) -> RawValue:
    data = json.dumps({"number": number, "text": "x" * size}).encode()
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


def test_signals_are_read_in_their_order_some_at_a_pass(taking: Reception) -> None:
    changes = [change(number) for number in range(2 * READ_AT_ONCE_MAX + 1)]
    for one in changes:
        taking.take(one)
    sizes = [len(taking.inbox)]
    while taking.has_unread:
        taking.read()
        sizes.append(len(taking.inbox))
    assert sizes == [0, READ_AT_ONCE_MAX, 2 * READ_AT_ONCE_MAX, 2 * READ_AT_ONCE_MAX + 1]
    carried, unrecorded = taking.successor()
    assert [one.fallback_key for one in carried] == [
        signal_key("run", place, one.payload.data) for place, one in enumerate(changes, 1)
    ]
    assert not unrecorded


def test_large_signals_are_read_fewer_at_a_pass(taking: Reception) -> None:
    for number in range(100):
        taking.take(change(number, READ_BYTES_MAX // 32))
    taking.read()
    assert 30 <= len(taking.inbox) <= 32


def test_what_a_run_has_not_read_at_its_end_is_left_in_its_history(taking: Reception) -> None:
    for number in range(READ_AT_ONCE_MAX + 1):
        taking.take(change(number))
    taking.read()
    assert taking.successor() == ([], True)
