"""A host's quiet hours are paused for once a day, and nobody else's pause is touched."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.operator_act import OperatorAct, at_the_terminal
from oldhost_sync.policy.rules.quiet_hours import QuietHours, duration, time_of_day
from oldhost_sync.relay.duty import HostsFailed
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.quiet_hours import QuietHoursKeeper
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.audit import record_act
from oldhost_sync.temporal.writer_client import Cause, UpdateRefused, WriterError, WriterUnavailable
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb

NIGHT = datetime(2027, 1, 15, 1, tzinfo=UTC)  # 02:00 in Berlin


class Stage:
    """A keeper that is active for HOST, its clock, and a writer that notes pauses; `problem` is what it raises."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.at = engine, NIGHT
        self.paused: list[OperatorAct] = []
        self.started: list[str] = []
        self.problem: WriterError | None = None
        transactions = Transactions(engine)
        self.leadership = Leadership(transactions, HOST, "one", 1e6)
        hours = (QuietHours(time_of_day("02:00"), duration("40m"), ZoneInfo("Europe/Berlin")),)
        self.keeper = QuietHoursKeeper(
            *(transactions, {HOST: self.leadership}, {HOST: self}, self, {HOST: hours}),
            wall_clock=self.now,
        )

    def now(self) -> float:
        return self.at.timestamp()

    async def update(self, name: str, act: OperatorAct) -> None:
        if self.problem is not None:
            raise self.problem
        assert name == "pause"
        self.paused.append(act)
        self.act("pause", act.operator, act.reason)

    async def start(self, host: str) -> None:
        self.started.append(host)

    def act(self, action: str, operator: str = "ana", reason: str = "lunch") -> None:
        with self.engine.begin() as connection:
            record_act(connection, host=HOST, action=action, operator=at_the_terminal(operator), reason=reason)

    def look(self, minutes: float = 0, *, active: bool = True) -> None:
        """One round, so long after the window's begin."""

        async def round_() -> None:
            if active:
                await self.leadership.hold(0.0)
            await self.keeper.run_once(0.0)

        self.at = NIGHT + timedelta(minutes=minutes)
        asyncio.run(round_())


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)


def test_a_window_is_paused_for_until_its_end(stage: Stage) -> None:
    for minutes in (-1, 0.5, 1, 40):
        stage.look(minutes)
    (pause,) = stage.paused
    assert (pause.operator, pause.reason) == ("quiet hours", "until 2027-01-15 01:40 UTC")
    assert pause.for_seconds == 39.5 * 60


def test_an_operators_resume_ends_it_for_that_night_only(stage: Stage) -> None:
    stage.look(1)
    stage.act("resume")
    stage.look(2)
    assert len(stage.paused) == 1
    stage.look(24 * 60 + 1)
    assert len(stage.paused) == 2


def test_an_operators_own_pause_is_left_and_ours_follows_if_it_ends_early(stage: Stage) -> None:
    stage.act("pause")
    stage.look(1)
    assert stage.paused == []
    stage.act("resume")
    stage.look(10)
    assert [pause.for_seconds for pause in stage.paused] == [30 * 60]


def test_a_relay_that_is_not_active_for_the_host_does_nothing(stage: Stage) -> None:
    stage.look(1, active=False)
    assert stage.paused == []


def test_a_writer_that_does_not_run_is_started_and_then_paused(stage: Stage) -> None:
    stage.problem = WriterUnavailable(HOST, Cause.NO_WRITER)
    stage.look(1)
    assert stage.started == [HOST]
    stage.problem = None
    stage.look(2)
    assert len(stage.paused) == 1


def test_a_refusal_is_followed_by_another_try(stage: Stage) -> None:
    stage.problem = UpdateRefused(HOST, "pause", "the writer is still reading")
    stage.look(1)
    stage.problem = None
    stage.look(2)
    assert len(stage.paused) == 1


def test_a_writer_that_does_not_answer_is_told_of(stage: Stage) -> None:
    stage.problem = WriterUnavailable(HOST, Cause.TOO_SLOW)
    with pytest.raises(HostsFailed):
        stage.look(1)
    assert stage.started == []
