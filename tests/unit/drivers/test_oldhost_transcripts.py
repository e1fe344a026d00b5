"""OldHost's bytes and answers, recorded before there were drivers: they stay as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.drivers.contract import Garbled, Peer
from oldhost_sync.drivers.events import Applied, Closing, ConnectionEnd, Event, Malformed, NoService, Rejected
from oldhost_sync.drivers.http.wire import HttpWire

RECORDED = json.loads((Path(__file__).parent / "oldhost_transcripts.json").read_text())
NONCE = 501
ANSWERS = [each for each in RECORDED["answers"] if "answer" in each]
GARBLED = [each for each in RECORDED["answers"] if "garbled" in each]


def begin(answer: dict[str, Any]) -> str:
    return str(answer["bytes"][:40])


def told(event: Event) -> list[Any]:
    """As recorded: the kind of answer, what it says, and why."""
    if isinstance(event, NoService):
        return ["not served"]
    names = ("expected", "surprise", "reason", "consumed", "is_told", "retry_after", "nonce", "said")
    said = {name: getattr(event, name) for name in event.__slots__ if name in names}
    return [type(event).__name__, said, *([event.why] if hasattr(event, "why") else [])]


def heard(wire: HttpWire, answer: dict[str, Any], pieces: list[bytes]) -> list[Event]:
    events = [event for piece in pieces for event in wire.feed(piece)]
    assert [each.ending for each in events[1:] if isinstance(each, Closing)] == [
        ConnectionEnd(ending) for ending in [answer["ending"]] if ending
    ]
    return events


@pytest.mark.parametrize("request_", RECORDED["requests"], ids=lambda one: str(one["number"]))
def test_requests_are_the_same_bytes(request_: dict[str, Any]) -> None:
    wire = HttpWire(Peer(*request_["peer"]))
    assert wire.operation(request_["number"], request_["body"].encode(), 0).decode() == request_["operation"]
    assert wire.ask_expected(0).decode() == request_["question"]


@pytest.mark.parametrize(
    "answer", [one for one in RECORDED["answers"] if "answer" in one], ids=lambda one: one["bytes"][:40]
)
def test_answers_mean_the_same_however_they_are_cut(answer: dict[str, Any]) -> None:
    data = answer["bytes"].encode("latin-1")
    end = data.index(b"\r\n\r\n") + 4
    for pieces in ([data], [data[: end // 2], data[end // 2 :]], [data[:end], data[end:]] if data[end:] else [data]):
        wire = HttpWire()
        wire.operation(NONCE, b"{}", 0)
        event = heard(wire, answer, pieces)[0]
        assert told(event) == answer["answer"]
        if not isinstance(event, Applied | Rejected | Malformed):
            assert wire.said is not None
            status, *words = answer["said"]
            assert [wire.said.words, wire.said.used, wire.said.refuses] == words
            assert (wire.said.kind, wire.said.rejects) == (f"status {status}", 400 <= status < 500)
        wire.ask_expected(0)
        assert told(heard(wire, answer, pieces)[0]) == (
            [answer["told"]] if answer["told"] == "not served" else answer["told"]
        )


@pytest.mark.parametrize(
    "answer", [one for one in RECORDED["answers"] if "garbled" in one], ids=lambda one: one["bytes"][:40]
)
def test_what_was_no_answer_is_none(answer: dict[str, Any]) -> None:
    with pytest.raises(Garbled) as refused:
        HttpWire().feed(answer["bytes"].encode("latin-1"))
    assert str(refused.value) == answer["garbled"]
