"""Recovery of signals that earlier runs left unread: which runs are read, what is recorded, what is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.common.v1 import Payload

from activities import signal_recovery
from activities.signal_recovery import Heartbeat, HistoryGone, RecoveryActivities, RunEvents, RunStart, SignalEvent
from oldhost_sync.policy.limits import RETENTION_DAYS
from tests.called_by_writer import called_by_writer
from tests.conformance.maria_world import HOST, MariaWorld
from workflows import messages

pytestmark = pytest.mark.mariadb

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def payload(number: int) -> Payload:
    change = {"entity_type": "unit", "entity_id": "u1", "event_type": "checked_in", "payload": {"number": number}}
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(change).encode())


def signals(*numbers: int, at: datetime = NOW) -> list[SignalEvent]:
    return [SignalEvent(f"request-{number}", at, payload(number)) for number in numbers]


@dataclass
class RetentionDays:
    """Histories by run id, the first run first; `gone` are listed and have none."""

    starts: dict[str, RunStart] = field(default_factory=dict)
    events: dict[str, RunEvents] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    have_ids: bool = True  # servers before 1.32 write no request ids

    def add(
        self,
        run: str,
        *numbers: int,
        continued: str = "",
        original: str = "",
        at: datetime = NOW,
        unread: bool = False,
        again: range = range(0),
    ) -> None:
        """`again`: the places, from 0, of what a reset gave again."""
        self.starts[run] = RunStart(run, original or run, continued, messages.WriterInput(HOST, unrecorded=unread))
        given = signals(*numbers, at=at)
        given = [
            replace(one, request_id=one.request_id if self.have_ids else "", given_again=place in again)
            for place, one in enumerate(given)
        ]
        self.events[run] = RunEvents(given)

    def runs_before(self, host: str, run_id: str, beat: Heartbeat) -> list[str]:
        return list(self.starts)[::-1]

    def start_of(self, host: str, run_id: str) -> RunStart:
        if run_id in self.gone or run_id not in self.starts:
            raise HistoryGone(run_id)
        return self.starts[run_id]

    def events_of(self, host: str, run_id: str, beat: Heartbeat) -> RunEvents:
        self.read.append(run_id)
        return self.events[run_id]


def recover(world: MariaWorld, histories: RetentionDays, continued: str = "") -> messages.Recovered:
    request = messages.Recovery("new", "new", continued, round(NOW.timestamp() * 1000))
    activities = RecoveryActivities(world.engine, histories)
    return called_by_writer().run(activities.recover_submissions, request)


def numbers(world: MariaWorld) -> list[int]:
    return [int(row[0]) for row in world.read("SELECT JSON_VALUE(payload, '$.number') FROM outbox_events ORDER BY id")]


def alerts(world: MariaWorld) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in world.read("SELECT kind, severity FROM alerts WHERE is_open = 1")]


def test_what_a_terminated_run_left_is_recorded_once(world: MariaWorld) -> None:
    histories = RetentionDays()
    histories.add("ended", 1, 2, 3)
    assert recover(world, histories).recorded == 3
    assert recover(world, histories).recorded == 0
    assert numbers(world) == [1, 2, 3]
    assert alerts(world) == []


def test_it_reads_back_to_the_run_that_was_given_everything(world: MariaWorld) -> None:
    histories = RetentionDays()
    histories.add("oldest", 1)
    histories.add("renewed", 2, continued="oldest")
    histories.add("ended", 3)
    recover(world, histories)
    assert histories.read == ["renewed", "ended"]
    assert numbers(world) == [2, 3]


def test_a_run_that_had_left_something_behind_itself_is_not_the_last(world: MariaWorld) -> None:
    histories = RetentionDays()
    histories.add("oldest", 1, continued="before")
    histories.add("renewed", 2, continued="oldest", unread=True)
    recover(world, histories, continued="renewed")
    assert numbers(world) == [1, 2]


@pytest.mark.parametrize("have_ids", [True, False], ids=["request ids", "no request ids"])
def test_signals_that_a_reset_gave_again_are_recorded_once(world: MariaWorld, *, have_ids: bool) -> None:
    histories = RetentionDays(have_ids=have_ids)
    histories.add("first", 1, 2)
    histories.add("second", 3, 4, continued="first")
    histories.add("third", 5, continued="second")
    histories.add("reset", 1, 2, 3, 4, 5, 6, original="first", again=range(1, 5))
    histories.add("after", 7, continued="reset")
    histories.add("reset again", 1, 2, 3, 4, 5, 6, 7, 8, original="first", again=range(1, 7))
    recover(world, histories)
    assert numbers(world) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_signals_that_a_reset_gave_again_are_recorded_once_though_the_server_was_upgraded(world: MariaWorld) -> None:
    histories = RetentionDays(have_ids=False)
    histories.add("first", 1)
    histories.add("second", 2, 3, continued="first")
    histories.events["second"].signals[1] = signals(3)[0]  # with a request id
    histories.add("reset", 1, 2, 3, original="first", again=range(1, 3))
    recover(world, histories)
    assert numbers(world) == [1, 2, 3]


@pytest.mark.parametrize(
    ("followed", "given_again"),
    [(True, range(1, 2)), (True, range(0)), (False, range(0))],
    ids=["given again", "left out by the reset", "of a run that did not follow"],
)
def test_an_equal_signal_that_was_sent_after_the_reset_is_recorded_too(
    world: MariaWorld, *, followed: bool, given_again: range
) -> None:
    histories = RetentionDays(have_ids=False)
    histories.add("first", 1)
    histories.add("second", 2, continued="first" if followed else "")
    histories.add("reset", 1, *[2] * len(given_again), 2, original="first", again=given_again)
    recover(world, histories)
    assert numbers(world) == [1, 2, 2]


def test_a_history_that_is_gone_is_told_once_and_the_rest_is_recorded(world: MariaWorld) -> None:
    histories = RetentionDays()
    histories.add("lost", 1)
    histories.add("ended", 2)
    histories.gone.append("lost")
    for _ in range(2):
        assert recover(world, histories).gone == ["lost"]
    assert numbers(world) == [2]
    assert alerts(world) == [("signals-lost", "critical")]


def test_runs_beyond_those_that_are_read_are_told_of(world: MariaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_recovery, "RUNS_MAX", 2)
    histories = RetentionDays()
    for number in range(1, 5):
        histories.add(f"run-{number}", number, continued=f"run-{number - 1}" if number > 1 else "", unread=True)
    assert recover(world, histories).gone == ["run-2"]
    assert numbers(world) == [3, 4]
    assert alerts(world) == [("signals-lost", "critical")]


def test_a_signal_older_than_what_the_outbox_keeps_is_told_and_not_recorded_again(world: MariaWorld) -> None:
    histories = RetentionDays()
    histories.add("ended", 1, at=NOW - timedelta(days=RETENTION_DAYS + 1))
    recover(world, histories)
    assert numbers(world) == []
    assert alerts(world) == [("signals-lost", "critical")]


def test_a_first_start_has_nothing_to_look_for(world: MariaWorld) -> None:
    assert recover(world, RetentionDays()).runs == 0
    assert alerts(world) == []
