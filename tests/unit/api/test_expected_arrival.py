"""When a write's answer says that OldHost will have the change, and what that costs: one question a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any

import pytest

from oldhost_sync.api.expected_arrival import ExpectedArrivals
from oldhost_sync.api.problems import unavailable
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.forecast.outlook import DISPATCH_MS, RELAY_MS, LaneOutlook, Outlook
from oldhost_sync.policy.rules.quiet_hours import QuietHours
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.intake.change_recorder import RecordedChange

pytestmark = pytest.mark.anyio
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
EMPTY = LaneOutlook()
IDLE = Outlook(400.0, 0, 0, 0, 0, 1.0, 120_000, 0, EMPTY, EMPTY)
# A hundred TXN changes of one property wait.
BUSY = Outlook(400.0, 0, 0, 0, 100, 1.0, 120_000, 0, LaneOutlook(40_000, 100, 1, {"": 100}), EMPTY)


class Writer:
    """Counts what it is asked."""

    def __init__(self, outlook: Outlook | None = BUSY) -> None:
        self.now = 1_000.0
        self.asked = 0
        self.outlook = outlook
        self.answers: Callable[[], Awaitable[None]] | None = None

    async def ask(self, name: str) -> Any:
        assert name == "outlook"
        self.asked += 1
        if self.answers is not None:
            await self.answers()
        return None if self.outlook is None else self.outlook.to_json()

    def arrivals(self) -> ExpectedArrivals:
        return ExpectedArrivals(self.ask, Promises, lambda: self.now)


def recorded(number: int, cls: PriorityClass = PriorityClass.TXN, property_id: str = "", **more: Any) -> RecordedChange:
    ref = ChangeRef(number, cls, "unit", f"u{number}", "e", 0, property_id)
    return RecordedChange(number, None, f"k{number}", ref, AT, "PENDING_SYNC", **more)


async def write(arrivals: ExpectedArrivals, change: RecordedChange) -> dict[str, Any]:
    arrivals.look()
    await asyncio.sleep(0)
    await arrivals.known()
    return arrivals.of(change)


def in_ms(answer: dict[str, Any]) -> float:
    return (datetime.fromisoformat(answer["expected_at"]) - AT) / timedelta(milliseconds=1)


async def test_a_change_is_expected_behind_those_that_wait() -> None:
    answer = await write(Writer().arrivals(), recorded(1))
    assert in_ms(answer) == 40_400
    assert answer["keeps_promise"] is True


async def test_an_idle_oldhost_has_it_after_our_own_delays_or_its_debounce() -> None:
    arrivals = Writer(IDLE).arrivals()
    assert in_ms(await write(arrivals, recorded(1))) == RELAY_MS + DISPATCH_MS + 400
    assert in_ms(await write(arrivals, recorded(2, PriorityClass.LWW))) == 120_400


async def test_what_was_recorded_since_counts_too() -> None:
    arrivals = Writer().arrivals()
    answers = [await write(arrivals, recorded(number)) for number in range(1, 4)]
    assert [in_ms(answer) for answer in answers] == [40_400, 40_800, 41_200]


async def test_once_the_writer_has_it_it_counts_once() -> None:
    writer = Writer()
    arrivals = writer.arrivals()
    await write(arrivals, recorded(1))
    writer.now += 5
    assert in_ms(await write(arrivals, recorded(2))) == 40_400


async def test_a_property_with_little_waits_for_little_of_the_others() -> None:
    lane = LaneOutlook(40_000, 100, 2, {"loud": 99, "calm": 1})
    arrivals = Writer(Outlook(400.0, 0, 0, 0, 100, 1.0, 120_000, 0, lane, EMPTY)).arrivals()
    assert in_ms(await write(arrivals, recorded(1, property_id="calm"))) == pytest.approx(400 * 4.5 + 400, abs=1)
    assert in_ms(await write(arrivals, recorded(2, property_id="loud"))) > 40_000


async def test_a_promise_that_will_break_is_said_to() -> None:
    late = Outlook(400.0, 0, 40_000, 0, 0, 1.0, 120_000, 0, EMPTY, EMPTY)
    arrivals = Writer(late).arrivals()
    assert (await write(arrivals, recorded(1, PriorityClass.EMERGENCY)))["keeps_promise"] is False
    assert (await write(arrivals, recorded(2)))["keeps_promise"] is True


async def test_a_ban_is_part_of_it() -> None:
    banned = Outlook(400.0, 900_000, 900_000, 0, 0, 1.0, 120_000, 0, EMPTY, EMPTY)
    answer = await write(Writer(banned).arrivals(), recorded(1, PriorityClass.EMERGENCY))
    assert in_ms(answer) >= 900_000
    assert answer["keeps_promise"] is False


async def test_quiet_hours_to_come_are_part_of_it() -> None:
    soon = QuietHours(time(12, 0), timedelta(hours=5), timezone(timedelta(seconds=-10)))
    writer = Writer()
    arrivals = ExpectedArrivals(writer.ask, Promises, lambda: writer.now, lambda: [soon])
    answer = await write(arrivals, recorded(1))
    assert in_ms(answer) == 40_400 + 5 * 3_600_000
    assert answer["keeps_promise"] is False


@pytest.mark.parametrize("change", [recorded(1, duplicate=True), RecordedChange(None, 1, "k", None, AT, "SCHEDULED")])
async def test_a_repetition_and_a_scheduled_change_are_told_nothing(change: RecordedChange) -> None:
    assert await write(Writer().arrivals(), change) == {"expected_at": None, "keeps_promise": None}


async def test_a_hundred_writes_in_a_second_ask_once() -> None:
    writer = Writer()
    arrivals = writer.arrivals()
    for number in range(100):
        await write(arrivals, recorded(number + 1))
        writer.now += 0.009
    assert writer.asked == 1
    writer.now += 0.2
    await write(arrivals, recorded(101))
    assert writer.asked == 2


async def test_while_nothing_waits_it_asks_every_ten_seconds() -> None:
    writer = Writer(IDLE)
    arrivals = writer.arrivals()
    for number in range(20):
        await write(arrivals, recorded(number + 1, PriorityClass.LWW))
        writer.now += 1.0
    assert writer.asked == 2


async def test_a_writer_that_is_silent_delays_one_answer_by_a_moment() -> None:
    writer, end = Writer(), asyncio.Event()
    writer.answers = end.wait  # type: ignore[assignment]
    arrivals = writer.arrivals()
    assert (await write(arrivals, recorded(1)))["expected_at"] is None
    assert (await write(arrivals, recorded(2)))["expected_at"] is None
    assert writer.asked == 1
    end.set()


async def test_a_writer_that_is_away_or_stands_still_is_expected_to_take_nothing() -> None:
    async def away() -> None:
        raise unavailable("writer-away", "t", "d", "a")

    for writer in (Writer(None), Writer()):
        writer.answers = away if writer.outlook else None
        arrivals = writer.arrivals()
        assert await write(arrivals, recorded(1)) == {"expected_at": None, "keeps_promise": None}
        await write(arrivals, recorded(2))
        assert writer.asked == 1


async def test_an_outlook_that_is_too_old_is_not_used() -> None:
    writer, end = Writer(), asyncio.Event()
    arrivals = writer.arrivals()
    await write(arrivals, recorded(1))
    writer.now += 60
    writer.answers = end.wait  # type: ignore[assignment]
    assert (await write(arrivals, recorded(2)))["expected_at"] is None
    end.set()
