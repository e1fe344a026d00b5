"""Events are the results of activities: they come back as they went, and those of the release before are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from oldhost_sync.policy.changes import ChangeResult
from oldhost_sync.policy.machine.events import (
    OpeningHalted,
    OpeningPostponed,
    OpeningResult,
    Probed,
    SendEnded,
    SessionOpened,
)

CONVERTER = DataConverter.default.payload_converter
REF = [7, "TXN", "unit", "u1", "booking", 1_700_000_000_000]
OPENED = SessionOpened(3, "queue", 501, [ChangeResult(6, "APPLIED", 500)], [REF], bound_is_cut=True)
SENT = SendEnded(
    [ChangeResult(7, "HELD")], False, 12.5, 900, "why", "halted", 7, [REF], [["unit", "u1", [5]]], "banned"
)


def read(told: dict[str, Any], hint: Any) -> object:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(told).encode())
    found: object = CONVERTER.from_payload(payload, hint)
    return found


@pytest.mark.parametrize(
    ("event", "hint"),
    [
        (OPENED, OpeningResult),
        (OpeningPostponed(2000, "ban"), OpeningResult),
        (OpeningHalted("foreign"), OpeningResult),
        (SENT, SendEnded),
        (Probed(session_open=False, expected_nonce=9), Probed),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_event_comes_back_as_it_went(event: object, hint: Any) -> None:
    assert CONVERTER.from_payload(CONVERTER.to_payload(event), hint) == event


def test_a_report_of_the_release_before_may_lack_what_came_later() -> None:
    assert read({"fates": [], "session_open": True}, SendEnded) == SendEnded()


def test_a_ref_that_is_none_is_refused_when_the_event_is_read() -> None:
    with pytest.raises(ValueError, match="not a change ref"):
        SendEnded(older=[[1]]).older_refs()
    with pytest.raises(ValueError, match="not a change ref"):
        SessionOpened(bound=[[1]]).bound_refs()
