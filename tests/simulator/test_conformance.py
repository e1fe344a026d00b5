"""The simulator keeps the protocol, by HTTP (or another make does: see `conftest.py`) and by frames."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from oldhost_simulator import Simulator
from tests.simulator.client import Reply
from tests.simulator.conformance import NonceRules, WireRules
from tests.simulator.frame_line import FrameLine


class TestNonceRules(NonceRules):
    pass


class TestWireRules(WireRules):
    pass


# How a frame's answers are called by HTTP: their status, and their error.
BY_HTTP: dict[str, tuple[int, str | None]] = {
    "applied": (200, None),
    "expected": (200, None),
    "gap": (400, "nonce_gap"),
    "used": (400, "nonce_replay"),
    "malformed": (400, "malformed"),
    "banned": (403, "banned"),
}


class TranslatedLine:
    """A line of frames that speaks as one of HTTP does."""

    def __init__(self, url: str) -> None:
        self._line = FrameLine(url)

    def sync(self, nonce: int | str | None, body: Any = None) -> Reply:
        return _translated(self._line.sync(nonce, body))

    def ask(self) -> Reply:
        return _translated(self._line.ask({"type": "expected"}))

    def expected_nonce(self) -> int:
        return self._line.expected()

    def close(self) -> None:
        self._line.close()


def _translated(said: dict[str, Any]) -> Reply:
    status, error = BY_HTTP[said.pop("type")]
    names = {"number": "nonce", "expected": "expected_nonce"} if error is None else {"expected": "expected_nonce"}
    body = {names.get(name, name): value for name, value in said.items() if error is None or name != "number"}
    headers = {"Retry-After": str(math.ceil(said["retry_after"]))} if "retry_after" in said else {}
    return Reply(status, body if error is None else {"error": error, **body}, headers)


class FrameHost:
    ban_seconds = 0.15

    def __init__(self, url: str) -> None:
        self._url = url

    def connect(self) -> TranslatedLine:
        return TranslatedLine(self._url)


class TestNonceRulesByFrames(NonceRules):
    @pytest.fixture
    def host(self, start: Callable[..., Simulator]) -> FrameHost:
        return FrameHost(start(dialect="frame", latency_ms=2, ban_seconds=0.15, first_nonce=501).url)
