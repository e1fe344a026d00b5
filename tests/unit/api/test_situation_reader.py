"""Looking bounds its time, and asks a server that hangs only once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from oldhost_sync.api import situation_reader
from oldhost_sync.api.problems import database_away
from oldhost_sync.api.situation_reader import Observation, Query
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.store.errors import DatabaseUnavailable


class Clock:
    """Instants, set by hand."""

    BEGIN = datetime(2026, 11, 22, 3, tzinfo=UTC)
    seconds = 0

    def now(self, _zone: object) -> datetime:
        return self.BEGIN + timedelta(seconds=self.seconds)


class Server:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: asyncio.Future[int] | None = None

    async def ask(self) -> int:
        self.asked += 1
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


def test_a_server_that_hangs_is_told_of_and_not_asked_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(situation_reader, "POLL_SECONDS_MAX", 0.01)

    async def play() -> None:
        server = Server()
        query = Query(server.ask, "it does not answer")
        assert [await query.see() for _ in range(3)] == [Observation(trouble="it does not answer", kind="silence")] * 3
        assert server.asked == 1
        assert server.answer is not None
        server.answer.set_result(7)
        assert await query.see() == Observation(7)
        await query.see()
        assert server.asked == 2

    asyncio.run(play())


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (writer_away("nobody polls", "no-worker"), Observation(trouble="Nobody polls.", kind="no-worker")),
        (database_away("connection refused"), Observation(trouble="connection refused.", kind="database-away")),
        (DatabaseUnavailable("connection lost"), Observation(trouble="connection lost", kind="database-away")),
    ],
)
def test_an_outage_is_words_and_no_error(error: Exception, seen: Observation[int]) -> None:
    async def fail() -> int:
        raise error

    assert asyncio.run(Query(fail, "").see()) == seen


def test_since_when_it_fails_is_told_by_who_has_watched_it_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(situation_reader, "datetime", clock)
    troubles = iter(["", "away", "away", "away", "", "away"])

    async def ask() -> int:
        if trouble := next(troubles):
            raise DatabaseUnavailable(trouble)
        return 7

    async def play() -> list[int | None]:
        query, found = Query(ask, ""), []
        for seconds in (0, 2, 4, 60, 62, 64):
            clock.seconds = seconds
            since = (await query.see()).since
            found.append(None if since is None else int((since - clock.BEGIN).total_seconds()))
        return found

    # It worked until 0; nobody watched between 4 and 60; then it worked until 62.
    assert asyncio.run(play()) == [None, 0, 0, None, None, 62]


def test_a_reason_that_was_told_is_kept_while_a_further_look_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the reason would come and go with each attempt."""
    monkeypatch.setattr(situation_reader, "POLL_SECONDS_MAX", 0.01)
    looks = iter(["no-worker", "hangs", "no-worker", "hangs", "hangs"])

    async def ask() -> int:
        if next(looks) == "hangs":
            await asyncio.sleep(0.02)
        raise writer_away("nobody polls", "no-worker", cure="start one")

    async def play() -> set[tuple[str, str, str]]:
        query = Query(ask, "it does not answer in time")
        seen = [await query.see() for _ in range(6)]
        return {(each.trouble, each.kind, each.step) for each in seen}

    assert asyncio.run(play()) == {("Nobody polls.", "no-worker", "start one")}


def test_a_mistake_of_ours_is_not_hidden() -> None:
    async def fail() -> int:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        asyncio.run(Query(fail, "").see())
