"""When refused writes are logged and told: at once in the log, in an alert if it lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem, database_away, forbidden, too_busy
from oldhost_sync.api.refused_writes import RefusedWrites
from oldhost_sync.policy.rules.conditions import Step
from oldhost_sync.store.errors import DatabaseUnavailable

FULL = database_away("table full (usually its disk) (MariaDB 1114)")


class Clock:
    """Seconds, set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Alerts:
    """A database that stores nothing but the number of refused writes in each step ("over": it closes the alert)."""

    def __init__(self) -> None:
        self.told: list[int | str] = []
        self.is_away = False

    async def run(self, fn: Any) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")
        step: Step = fn.keywords["step"]
        self.told.append(step.fact.count if step.fact else "over")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def alerts() -> Alerts:
    return Alerts()


@pytest.fixture
def refused(clock: Clock, alerts: Alerts) -> RefusedWrites:
    return RefusedWrites("oldhost", alerts, clock)  # type: ignore[arg-type]


@pytest.fixture
def refuse(refused: RefusedWrites, clock: Clock) -> Callable[..., None]:
    """One refused write a second, for so many seconds."""

    def refuse(seconds: int, problem: Problem = FULL) -> None:
        for _ in range(seconds):
            refused.note(problem)
            clock.now += 1

    return refuse


LONG = round(http_limits.REFUSED_WRITES_SECONDS) + 1
PAUSE = round(http_limits.REFUSED_WRITES_PAUSE_SECONDS) + 1


def test_a_short_spell_raises_no_alert(refused: RefusedWrites, refuse: Any, alerts: Alerts) -> None:
    """A fail-over is one."""
    refuse(LONG - 2)
    asyncio.run(refused.keep_alert())
    assert alerts.told == []


def test_two_short_spells_are_not_one_long_one(
    refused: RefusedWrites, refuse: Any, alerts: Alerts, clock: Clock
) -> None:
    refuse(LONG - 2)
    refused.recorded()
    clock.now += PAUSE
    refuse(LONG - 2)
    asyncio.run(refused.keep_alert())
    assert alerts.told == []


def test_a_spell_lasts_until_a_write_is_taken(refused: RefusedWrites, alerts: Alerts, clock: Clock) -> None:
    """At night an application may repeat its one write each minute."""
    for _ in range(3):
        refused.note(FULL)
        asyncio.run(refused.keep_alert())
        clock.now += PAUSE + 30
    assert alerts.told == [2, 3]


def test_a_long_spell_is_told_with_all_its_refusals_brought_up_to_date_and_closed(
    refused: RefusedWrites, refuse: Any, alerts: Alerts, clock: Clock
) -> None:
    refuse(LONG)
    asyncio.run(refused.keep_alert())
    refuse(5)
    asyncio.run(refused.keep_alert())
    asyncio.run(refused.keep_alert())
    refused.recorded()
    clock.now += PAUSE
    asyncio.run(refused.keep_alert())
    asyncio.run(refused.keep_alert())
    assert alerts.told == [LONG, LONG + 5, "over"]


def test_an_alert_is_closed_although_most_writes_were_taken_since(
    refused: RefusedWrites, refuse: Any, alerts: Alerts, clock: Clock
) -> None:
    refuse(LONG)
    asyncio.run(refused.keep_alert())
    for _ in range(100 * LONG):
        refused.recorded()
    clock.now += PAUSE
    asyncio.run(refused.keep_alert())
    assert alerts.told == [LONG, "over"]


def test_what_the_database_could_not_store_is_told_when_it_can(
    refused: RefusedWrites, refuse: Any, alerts: Alerts, clock: Clock
) -> None:
    alerts.is_away = True
    refuse(LONG)
    asyncio.run(refused.keep_alert())
    refused.recorded()
    clock.now += PAUSE
    asyncio.run(refused.keep_alert())
    refuse(1)  # a spell of its own, and a short one
    alerts.is_away = False
    asyncio.run(refused.keep_alert())
    assert alerts.told == [LONG, "over"]


def test_after_a_long_spell_a_short_one_is_no_alert_again(
    refused: RefusedWrites, refuse: Any, alerts: Alerts, clock: Clock
) -> None:
    refuse(LONG)
    refused.recorded()
    clock.now += PAUSE
    refuse(5)
    asyncio.run(refused.keep_alert())
    assert alerts.told == [LONG, "over"]


def test_one_bad_request_among_many_writes_raises_no_alert(refused: RefusedWrites, refuse: Any, alerts: Alerts) -> None:
    """A row that is locked, or an error of ours for one kind of request."""
    for _ in range(LONG):
        refuse(1, too_busy())
        for _ in range(20):
            refused.recorded()
    asyncio.run(refused.keep_alert())
    assert alerts.told == []


def test_a_callers_own_faults_are_no_refused_writes(refused: RefusedWrites, refuse: Any, alerts: Alerts) -> None:
    refuse(LONG, forbidden("viewer", ["app"]))
    asyncio.run(refused.keep_alert())
    assert alerts.told == []


def test_the_log_says_when_it_began_and_when_it_is_over(
    refused: RefusedWrites, refuse: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "oldhost_sync.api"):
        refuse(4)
        refused.recorded()
        clock.now += PAUSE
        asyncio.run(refused.keep_alert())
    assert caplog.messages == [
        "a write of oldhost was refused: Nothing was recorded: table full (usually its disk) (MariaDB 1114).",
        "writes of oldhost are taken again; 4 were refused",
    ]
