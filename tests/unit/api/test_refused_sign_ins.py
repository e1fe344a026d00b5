"""Refused sign-ins are told, and whoever tries does not decide how much is written."""

from __future__ import annotations

import pytest

from oldhost_sync.api.quotas import SOURCES_MAX, WINDOW_SECONDS, RefusedSignIns

WHY = "an unknown token"


class Minute:
    def __init__(self) -> None:
        self.now = 0.0
        self.refused = RefusedSignIns(lambda: self.now)

    def over(self) -> None:
        self.now += WINDOW_SECONDS
        self.refused.report_due()


def test_the_first_is_told_at_once_and_the_rest_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    minute = Minute()
    for _ in range(1_000):
        minute.refused.note("10.0.0.1", WHY)
    assert caplog.messages == ["refused a sign-in from 10.0.0.1: an unknown token"]
    minute.over()
    assert caplog.messages[1:] == ["refused 999 more sign-ins from 10.0.0.1 within a minute: an unknown token"]


def test_many_addresses_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    minute = Minute()
    for number in range(10_000):
        minute.refused.note(f"10.0.{number // 256}.{number % 256}", WHY)
    minute.over()
    assert len(caplog.messages) == SOURCES_MAX + 1
    assert caplog.messages[-1].startswith(f"refused {10_000 - SOURCES_MAX} more sign-ins from other addresses")


def test_the_next_minute_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    minute = Minute()
    minute.refused.note("10.0.0.1", WHY)
    minute.over()
    minute.refused.note("10.0.0.1", WHY)
    assert len(caplog.messages) == 2
