"""One token can't take everybody's time: what is over its quota is refused, told, and listed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import Caller
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.quota import Quotas
from oldhost_sync.settings import Role
from oldhost_sync.store.access import usage_of_tokens
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.intake.rules import set_rule
from tests.integration.api.conftest import HOST, TOKENS, ScriptedWriter, a_client, served
from tests.integration.api.test_writes import DOOR_CODE, count_changes

EMERGENCY = {"entity_type": "unit", "entity_id": "12B", "event_type": "guest_locked_out", "payload": {}}
SHOP = Caller("shop", Role.APP)


@pytest.fixture
def told_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tokens used is told when a test says so, and not each second."""
    monkeypatch.setattr(http_limits, "QUOTA_EXCHANGE_SECONDS", 3_600)


@contextlib.contextmanager
def a_process(database_url: str, **quotas: int) -> Iterator[Dependencies]:
    """What an API process has, without its server."""
    dependencies = Dependencies(
        HOST, TOKENS, Database(connect_for_api(database_url)), ScriptedWriter(), of_each_token=Quotas(**quotas)
    )
    yield dependencies
    dependencies.database.close()


def accepted(dependencies: Dependencies, count: int, event_type: str = "guest_locked_out") -> int:
    """How many of so many changes, one after the other, are let through."""
    done = 0
    for _ in range(count):
        with contextlib.suppress(Problem):
            dependencies.quotas.changes(SHOP, [event_type])
            done += 1
    return done


@contextlib.contextmanager
def an_api(database_url: str, **quotas: int) -> Iterator[dict[str, httpx.Client]]:
    with (
        a_process(database_url, **quotas) as dependencies,
        served(create_app(dependencies)) as address,
        a_client(address, "shop") as shop,
        a_client(address, "anna") as anna,
        a_client(address, "vera") as vera,
    ):
        yield {"shop": shop, "anna": anna, "vera": vera}


def kind_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def test_a_storm_of_emergencies_is_cut_at_the_quota_and_holds_nobody_else(database_url: str, engine: Engine) -> None:
    with an_api(database_url, emergencies=20) as who:
        answers = [who["shop"].post("/api/changes", json=EMERGENCY) for _ in range(50)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) >= 20
        assert {answer.status_code for answer in answers} == {202, 429}
        assert count_changes(engine) == len(answers) - len(refused)
        assert kind_of(refused[0]) == (429, "over-quota")
        assert refused[0].json()["quota"] == "emergencies"
        assert int(refused[0].headers["retry-after"]) >= 1
        # Its other changes go on, and so do emergencies of others.
        assert who["shop"].post("/api/changes", json=DOOR_CODE).status_code == 202
        assert who["anna"].post("/api/changes", json=EMERGENCY).status_code == 202


def test_changes_of_a_batch_count_each_and_are_refused_together(database_url: str, engine: Engine) -> None:
    with an_api(database_url, changes=10) as who:
        batch = {"changes": [DOOR_CODE | {"entity_id": str(number)} for number in range(8)]}
        assert who["shop"].post("/api/changes/batch", json=batch).status_code == 202
        assert kind_of(who["shop"].post("/api/changes/batch", json=batch)) == (429, "over-quota")
        assert count_changes(engine) == 8
        assert who["shop"].post("/api/units/7/status", json={"status": "Clean"}).status_code == 202
        assert who["shop"].put("/api/units/7", json={"name": "x", "status": "Dirty"}).status_code == 429


def test_a_batch_of_more_than_a_minutes_emergencies_is_refused_and_says_how_many_may_go(database_url: str) -> None:
    with an_api(database_url, emergencies=5) as who:
        answer = who["shop"].post("/api/changes/batch", json={"changes": [EMERGENCY] * 6})
        assert answer.status_code == 429
        assert answer.json()["action"] == "Send at most 5 emergencies in one request."


def test_emergencies_scheduled_for_one_minute_are_within_the_quota_whenever_they_were_sent(database_url: str) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(second=5)

    def sent_by(client: httpx.Client, at: datetime, **more: str) -> httpx.Response:
        return client.post("/api/changes", json=EMERGENCY | {"not_before": at.isoformat()} | more)

    # Another process each time: none of them has seen the others' emergencies.
    for _ in range(2):
        with an_api(database_url, emergencies=10) as who:
            assert [sent_by(who["shop"], tomorrow).status_code for _ in range(5)] == [202] * 5
    with an_api(database_url, emergencies=10) as who:
        refused = sent_by(who["shop"], tomorrow, idempotency_key="one-more")
        assert kind_of(refused) == (429, "over-quota")
        assert refused.json()["action"] == "Spread them over several minutes."
        assert who["shop"].get("/api/changes/one-more").status_code == 404
        assert sent_by(who["shop"], tomorrow + timedelta(minutes=1)).status_code == 202
        assert sent_by(who["anna"], tomorrow).status_code == 202


def test_emergencies_that_batches_schedule_for_one_minute_are_within_the_quota_and_may_be_repeated(
    database_url: str, engine: Engine
) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(second=5)

    def batch_of(count: int, name: str, at: datetime = tomorrow) -> dict[str, object]:
        keys = [f"{name}-{number}" for number in range(count)]
        return {"changes": [EMERGENCY | {"not_before": at.isoformat(), "idempotency_key": key} for key in keys]}

    for _ in range(2):  # by two processes; the second time it is a repetition
        with an_api(database_url, emergencies=10) as who:
            assert who["shop"].post("/api/changes/batch", json=batch_of(8, "first")).status_code == 202
    with an_api(database_url, emergencies=10) as who:
        refused = who["shop"].post("/api/changes/batch", json=batch_of(3, "more"))
        assert kind_of(refused) == (429, "over-quota")
        assert int(refused.headers["retry-after"]) > 80_000  # when that minute is over
        now = [who["shop"].post("/api/changes", json=EMERGENCY).status_code for _ in range(7)]
        assert now == [202] * 7  # what was refused was not used up
        later = batch_of(3, "later", tomorrow + timedelta(minutes=1))
        assert who["shop"].post("/api/changes/batch", json=later).status_code == 202
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM scheduled_changes").scalar() == 11


@pytest.mark.usefixtures("told_by_hand")
def test_a_refused_schedule_is_among_what_was_refused_and_raises_the_alert(database_url: str, engine: Engine) -> None:
    with a_process(database_url, emergencies=10) as dependencies:
        refused = Problem(429, "over-quota", "", "", "")
        with contextlib.suppress(Problem), dependencies.quotas.given_back(SHOP, ["guest_locked_out"]):
            raise refused
        asyncio.run(dependencies.quotas.exchange())
    with engine.connect() as connection:
        (found,) = usage_of_tokens(connection, HOST, 5)
        assert found.usage.refused == 1
        assert connection.exec_driver_sql("SELECT kind FROM alerts").scalar() == "over-quota"


@pytest.mark.usefixtures("told_by_hand")
def test_after_an_outage_what_others_used_meanwhile_is_not_held_against_a_token(database_url: str) -> None:
    clock = [0.0]

    async def both() -> int:
        with a_process(database_url, emergencies=20) as one, a_process(database_url, emergencies=20) as other:
            for dependencies in (one, other):
                dependencies.quotas._clock = lambda: clock[0]
            for _ in range(10):  # minutes without a database
                assert (accepted(one, 20), accepted(other, 5)) == (20, 5)
                for dependencies in (one, other):
                    dependencies.quotas.missed()
                clock[0] += 60.0
            clock[0] -= 30.0
            await one.quotas.exchange()
            other.quotas.request(SHOP)
            await other.quotas.exchange()
            return accepted(other, 20)

    assert asyncio.run(both()) == 20


def test_requests_have_a_quota_on_every_route_but_those_without_a_token(database_url: str) -> None:
    with an_api(database_url, requests=3) as who:
        assert [who["vera"].get("/api/units").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert who["vera"].get("/nothing").status_code == 429
        assert who["vera"].get("/readyz").status_code == 200
        assert who["shop"].get("/api/units").status_code == 200


@pytest.mark.usefixtures("told_by_hand")
def test_processes_share_a_tokens_quota_from_what_they_tell_each_other(database_url: str) -> None:
    async def both() -> tuple[int, int]:
        with a_process(database_url, emergencies=20) as one, a_process(database_url, emergencies=20) as other:
            first = accepted(one, 15)
            await one.quotas.exchange()
            other.quotas.request(SHOP)
            await other.quotas.exchange()
            return first, accepted(other, 15)

    first, second = asyncio.run(both())
    assert first == 15
    assert 5 <= second <= 6  # a third of a second gives another one


@pytest.mark.usefixtures("told_by_hand")
def test_what_a_process_told_itself_does_not_count_twice(database_url: str) -> None:
    async def twice() -> int:
        with a_process(database_url, emergencies=20) as one:
            assert accepted(one, 8) == 8
            await one.quotas.exchange()
            assert accepted(one, 4) == 4
            await one.quotas.exchange()
            return accepted(one, 20)

    assert 8 <= asyncio.run(twice()) <= 9


@pytest.mark.usefixtures("told_by_hand")
def test_what_an_emergency_is_follows_the_rules(database_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        set_rule(connection, HOST, "fire", PriorityClass.EMERGENCY)

    async def after_a_look() -> int:
        with a_process(database_url, emergencies=5) as one:
            one.quotas.request(SHOP)
            await one.quotas.exchange()
            return accepted(one, 10, "fire")

    assert 5 <= asyncio.run(after_a_look()) <= 6


@pytest.mark.usefixtures("told_by_hand")
def test_what_is_refused_opens_one_alert_for_the_token_that_counts_on(database_url: str, engine: Engine) -> None:
    alerts = text("SELECT kind, severity, occurrences, message FROM alerts")

    async def refused(rounds: int) -> None:
        with a_process(database_url, emergencies=5) as one:
            for _ in range(rounds):
                accepted(one, 25)
                one.quotas._alerts_at = float("-inf")
                await one.quotas.exchange()

    asyncio.run(refused(2))
    with engine.connect() as connection:
        [(kind, severity, count, message)] = connection.execute(alerts).all()
    assert (kind, severity) == ("over-quota", "critical")
    assert 42 <= count <= 45
    assert message.startswith("shop uses more than its 5 emergencies a minute")


def test_the_noisiest_tokens_are_listed_with_what_they_used(database_url: str) -> None:
    with an_api(database_url, emergencies=2) as who:
        for _ in range(5):
            who["shop"].post("/api/changes", json=EMERGENCY)
        who["anna"].post("/api/changes", json=DOOR_CODE)
        listed: dict[str, Any] = {}
        while len(listed.get("tokens", ())) < 3:
            listed = who["vera"].get("/api/usage").json()
    assert listed["quotas"]["emergencies"] == 2
    first, second, _ = listed["tokens"]
    assert (first["token"], first["requests"], first["changes"], first["refused"]) == ("shop", 5, 2, 3)
    assert (second["token"], second["changes"], second["refused"]) == ("anna", 1, 0)


@pytest.mark.usefixtures("told_by_hand")
def test_a_minute_of_an_hour_ago_is_overwritten(database_url: str, engine: Engine) -> None:
    async def use() -> None:
        with a_process(database_url) as one:
            accepted(one, 3)
            await one.quotas.exchange()

    asyncio.run(use())
    with engine.begin() as connection:
        connection.execute(text("UPDATE token_usage SET minute = minute - 60"))
        assert usage_of_tokens(connection, HOST, 60) == []
    asyncio.run(use())
    with engine.connect() as connection:
        [shown] = usage_of_tokens(connection, HOST, 60)
    assert shown.usage.changes == 3


@pytest.mark.usefixtures("told_by_hand")
def test_without_its_database_a_process_keeps_the_quota_for_itself() -> None:
    async def alone() -> int:
        with a_process("mysql+pymysql://nobody@127.0.0.1:1/none", emergencies=5) as one:
            assert accepted(one, 3) == 3
            with pytest.raises(DatabaseUnavailable):
                await one.quotas.exchange()
            return accepted(one, 5)

    assert asyncio.run(alone()) == 2
