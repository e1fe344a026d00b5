"""Delivery on a real database and a real webhook: at least once, by one worker at a time, and in nobody's way."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync import delivery as alert_delivery
from oldhost_sync.delivery import (
    PAUSE_SECONDS_MAX,
    REFUSALS_MAX,
    WEBHOOK_POLL_SECONDS,
    Delivery,
    DeliveryFailed,
    post,
    signature,
)
from oldhost_sync.roles import worker
from oldhost_sync.settings import load_settings
from oldhost_sync.store import alert_events
from oldhost_sync.store.alerts import close_alert, raise_alert
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.temporal.client import TemporalUnavailable
from tests.conformance.maria_world import HOST, MariaWorld
from tests.integration.activities.webhook import Webhook

pytestmark = pytest.mark.mariadb

OTHER = "other-host"
SECRET = "made by chance, for a test"
# Of this test's database alone: the server has others.
OPEN_TRANSACTIONS = (
    "SELECT COUNT(*) FROM information_schema.innodb_trx "
    "JOIN information_schema.processlist ON id = trx_mysql_thread_id WHERE db = DATABASE() AND id <> CONNECTION_ID()"
)
Post = Callable[[str, dict[str, Any]], None]


def alert(world: MariaWorld, message: str, host: str = HOST) -> None:
    with world.engine.begin() as connection:
        raise_alert(connection, host=host, kind="ban", severity="critical", message=message, dedupe_key=message)


def waiting(world: MariaWorld) -> list[str]:
    return [m for (m,) in world.read("SELECT message FROM alert_events WHERE delivered_at IS NULL ORDER BY id")]


def delivery(world: MariaWorld, webhook: Webhook, *hosts: str, post: Post = post) -> Delivery:
    return Delivery(world.engine, webhook.url, hosts or (HOST,), post)


# ------------------------------------------------------------------------------------------------------------ one round


def test_each_alert_of_the_hosts_served_is_told_once_oldest_first(world: MariaWorld, webhook: Webhook) -> None:
    for message, host in (("a", HOST), ("b", OTHER), ("c", HOST), ("not ours", "third")):
        alert(world, message, host)
    with world.engine.begin() as connection:
        close_alert(connection, HOST, "a")
    ours = delivery(world, webhook, HOST, OTHER)
    assert ours.run_once().delivered == 4
    assert sorted(webhook.posted) == ["a", "a", "b", "c"]
    assert ours.run_once().delivered == 0
    assert (webhook.posted, waiting(world)) == ([], ["not ours"])


def test_an_alert_that_gets_worse_is_told_again_though_it_did_so_while_it_was_told(
    world: MariaWorld, webhook: Webhook
) -> None:
    with world.engine.begin() as connection:
        raise_alert(connection, HOST, "emergency-late", "warning", "two are late")

    def gets_worse(url: str, content: dict[str, Any]) -> None:
        post(url, content)
        if content["severity"] == "warning":
            with world.engine.begin() as connection:
                raise_alert(connection, HOST, "emergency-late", "critical", "two are too late")

    ours = delivery(world, webhook, post=gets_worse)
    for _ in range(3):
        ours.run_once()
    assert webhook.posted == ["two are late", "two are too late"]
    assert waiting(world) == []


def test_the_webhook_gets_what_people_need_to_know(world: MariaWorld, webhook: Webhook) -> None:
    alert(world, "door \ud800 🏠")
    delivery(world, webhook).run_once()
    told = webhook.came.get()
    assert told.pop("created_at").endswith("+00:00")
    assert told.pop("at").endswith("+00:00")
    assert told == {
        "event_id": 1,
        "event": "opened",
        "id": 1,
        "host": HOST,
        "kind": "ban",
        "cause": "door \\ud800 🏠",
        "severity": "critical",
        "message": "door \\ud800 🏠",
        "count": 1,
        "change_id": None,
        "acknowledged_by": None,
        "operator": None,
        "reason": None,
        "runbook": "docs/operations.md#alert-ban",
    }


def test_the_webhook_hears_of_a_closing_with_its_reason(world: MariaWorld, webhook: Webhook) -> None:
    alert(world, "a")
    with world.engine.begin() as connection:
        close_alert(connection, HOST, "a", reason="OldHost takes operations again")
    delivery(world, webhook).run_once()
    told = [webhook.came.get() for _ in range(2)]
    assert [(each["event"], each["id"], each["reason"]) for each in told] == [
        ("opened", 1, None),
        ("closed", 1, "OldHost takes operations again"),
    ]
    assert told[0]["event_id"] < told[1]["event_id"]


def test_the_receiver_knows_by_the_documented_check_that_a_message_is_ours(world: MariaWorld, webhook: Webhook) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    is_ours = names["is_ours"]
    alert(world, "a")
    delivery(world, webhook, post=partial(post, secret=SECRET)).run_once()
    ((headers, body),) = webhook.raw
    assert is_ours(headers, body, SECRET)
    assert headers["X-OldHost-Sync-Event"] == "1"
    assert not is_ours(headers, body + b" ", SECRET)
    assert not is_ours(headers, body, "another secret of ours")
    assert not is_ours({}, body, SECRET)
    older = str(int(headers["X-OldHost-Sync-Timestamp"]) - 1)
    changed = {"X-OldHost-Sync-Timestamp": older, "X-OldHost-Sync-Signature": headers["X-OldHost-Sync-Signature"]}
    assert not is_ours(changed, body, SECRET)
    old = str(int(older) - 300)
    signed = {"X-OldHost-Sync-Timestamp": old, "X-OldHost-Sync-Signature": signature(SECRET, old, body)}
    assert not is_ours(signed, body, SECRET)


def test_without_a_secret_nothing_is_signed(world: MariaWorld, webhook: Webhook) -> None:
    alert(world, "a")
    delivery(world, webhook).run_once()
    ((headers, _),) = webhook.raw
    assert "X-OldHost-Sync-Signature" not in headers


@pytest.mark.parametrize("status", [302, 308, 429, 500, 503])
def test_a_webhook_that_is_away_is_asked_once_a_round_and_told_later(
    world: MariaWorld, webhook: Webhook, status: int
) -> None:
    for message in "ab":
        alert(world, message)
    ours = delivery(world, webhook)
    webhook.answer = lambda _: status
    assert ours.run_once().trouble == f"HTTP {status}"
    assert (webhook.posted, webhook.methods, waiting(world)) == (["a"], ["POST"], ["a", "b"])
    webhook.answer = lambda _: 204
    ours.run_once()
    assert (webhook.posted, waiting(world)) == (["a", "b"], [])


def test_an_alert_that_the_webhook_will_not_have_stands_in_nobodys_way(world: MariaWorld, webhook: Webhook) -> None:
    for message in ("bad", "a"):
        alert(world, message)
    webhook.answer = lambda told: 400 if told["message"] == "bad" else 200
    ours = delivery(world, webhook)
    ours.run_once()
    alert(world, "b")
    ours.run_once()
    assert (webhook.posted, waiting(world)) == (["bad", "a", "b"], ["bad"])
    ours.run_once()
    assert webhook.posted == ["bad"]


def test_a_webhook_that_will_have_none_is_left_alone_and_each_gets_its_turn(
    world: MariaWorld, webhook: Webhook
) -> None:
    for number in range(REFUSALS_MAX + 2):
        alert(world, str(number))
    webhook.answer = lambda _: 404
    ours = delivery(world, webhook)
    ours.run_once()
    assert webhook.posted == ["0", "1", "2", "3", "4"]
    ours.run_once()
    assert webhook.posted == ["5", "6"]
    ours.run_once()
    assert webhook.posted == ["0", "1", "2", "3", "4"]


def test_one_hosts_refused_alerts_do_not_stand_in_anothers_way(world: MariaWorld, webhook: Webhook) -> None:
    for number in range(REFUSALS_MAX):
        alert(world, str(number), "a-host")
    alert(world, "fine", "b-host")
    webhook.answer = lambda told: 200 if told["message"] == "fine" else 400
    delivery(world, webhook, "a-host", "b-host").run_once()
    assert "fine" in webhook.posted


def test_no_transaction_is_open_while_the_webhook_is_told(world: MariaWorld, webhook: Webhook) -> None:
    seen: list[Any] = []
    for message in "ab":
        alert(world, message)
    delivery(
        world,
        webhook,
        post=lambda *_: seen.extend(world.read(OPEN_TRANSACTIONS)),
    ).run_once()
    assert seen == [(0,), (0,)]


def test_two_workers_do_not_both_tell(world: MariaWorld, webhook: Webhook) -> None:
    other = delivery(world, webhook, HOST, OTHER)
    for message, host in (("a", HOST), ("b", OTHER)):
        alert(world, message, host)
    rounds = []
    delivery(world, webhook, HOST, post=lambda *_: rounds.append(other.run_once().delivered)).run_once()
    assert (rounds, webhook.posted, waiting(world)) == ([1], ["b"], [])


def test_a_claim_ends_with_its_holders_connection_and_a_frozen_holder_is_hung_up_on(world: MariaWorld) -> None:
    def fail_under_a_claim() -> None:
        with alert_events.held_lock(world.engine, HOST) as connection:
            assert connection is not None
            assert connection.exec_driver_sql("SELECT @@wait_timeout").scalar_one() == alert_events.SILENT_SECONDS_MAX
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_under_a_claim()
    # The server hears of a closed connection in its own time; this waits for that.
    assert world.read(f"SELECT GET_LOCK({alert_events._NAME}, 5)", HOST) == [(1,)]


def test_a_worker_that_lost_its_claim_stops_telling(world: MariaWorld, webhook: Webhook) -> None:
    for message in "ab":
        alert(world, message)
    told: list[str] = []

    def lose_the_claim(_: str, content: dict[str, Any]) -> None:
        told.append(content["message"])
        ((number,),) = world.read(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() "
            "ORDER BY time_ms LIMIT 1"
        )
        world.execute(f"KILL {number}")

    with pytest.raises(DBAPIError):
        delivery(world, webhook, post=lose_the_claim).run_once()
    assert (told, waiting(world)) == (["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/secret", "ConnectionRefusedError"),
        ("http://127.0.0.1:port/secret", "InvalidURL"),
        ("http://" + "x" * 70 + "/secret", "UnicodeError"),
    ],
)
def test_what_keeps_an_alert_from_the_webhook_is_said_without_its_address(url: str, why: str) -> None:
    with pytest.raises(DeliveryFailed, match=f"^{why}$"):
        post(url, {})


# ------------------------------------------------------------------------------------------------------------ the loop


def test_an_outage_is_told_of_once_with_growing_pauses_and_so_is_its_end(
    world: MariaWorld, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oldhost_sync.delivery")
    alert(world, "guest 7 is locked out")
    ours = delivery(world, webhook)
    webhook.answer = lambda _: 503
    pauses = [ours.guarded_round() for _ in range(6)]
    assert pauses == [2.0, 4.0, 8.0, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    webhook.answer = lambda _: 200
    assert [ours.guarded_round() for _ in range(2)] == [WEBHOOK_POLL_SECONDS, WEBHOOK_POLL_SECONDS]
    assert [record.getMessage() for record in caplog.records] == [
        "alerts can't be delivered (the webhook: HTTP 503); they are kept and will be delivered later",
        "alerts are delivered again",
    ]


def test_a_database_that_is_away_is_waited_for(
    world: MariaWorld, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise DatabaseUnavailable

    alert(world, "a")
    ours = delivery(world, webhook)
    with monkeypatch.context() as patch:
        patch.setattr("oldhost_sync.delivery.run_in_transaction", away)
        assert ours.guarded_round() > WEBHOOK_POLL_SECONDS
    assert ours.guarded_round() == WEBHOOK_POLL_SECONDS
    assert webhook.posted == ["a"]


def test_a_pool_without_a_free_connection_is_an_outage_like_any_other(
    world: MariaWorld, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise PoolTimeout("QueuePool limit reached")

    alert(world, "a")
    ours = delivery(world, webhook)
    with monkeypatch.context() as patch:
        patch.setattr("oldhost_sync.delivery.held_lock", full)
        assert ours.guarded_round() > WEBHOOK_POLL_SECONDS
    ours.guarded_round()
    assert webhook.posted == ["a"]


def test_an_unforeseen_error_is_told_with_its_traceback_and_the_next_round_goes_on(
    world: MariaWorld, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    def unforeseen(*_: object) -> None:
        raise RuntimeError

    alert(world, "a")
    ours = delivery(world, webhook, post=unforeseen)
    assert [ours.guarded_round() for _ in range(2)] == [2.0, 4.0]
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR", "ERROR"]
    ours.post = post
    assert ours.guarded_round() == WEBHOOK_POLL_SECONDS
    assert webhook.posted == ["a"]


def test_who_leaves_tells_no_more(world: MariaWorld, webhook: Webhook) -> None:
    for message in "ab":
        alert(world, message)
    ours = delivery(world, webhook, post=lambda *_: ours.leave())
    ours.run()
    assert waiting(world) == ["b"]


# ----------------------------------------------------------------------------------------------------------- the roles


def alerts_delivered(
    world: MariaWorld, registry: CollectorRegistry | None = None, **webhook: str
) -> AbstractAsyncContextManager[None]:
    settings = load_settings(_env_file=None, host=HOST, **webhook)
    return alert_delivery.alerts_delivered(settings, world.engine, registry or CollectorRegistry())


def test_a_role_tells_of_an_alert_about_a_second_later_until_it_leaves(world: MariaWorld, webhook: Webhook) -> None:
    async def work() -> None:
        async with alerts_delivered(world, alert_webhook_url=webhook.url):
            alert(world, "a")
            told = await asyncio.to_thread(webhook.came.get, timeout=WEBHOOK_POLL_SECONDS + 5)
            assert told["message"] == "a"

    asyncio.run(work())
    assert waiting(world) == []
    assert "alert-delivery" not in {thread.name for thread in threading.enumerate()}


def test_a_role_that_tells_of_alerts_shows_how_many_wait(world: MariaWorld, webhook: Webhook) -> None:
    registry = CollectorRegistry()
    webhook.answer = lambda _: 503
    alert(world, "a")

    async def work() -> float | None:
        async with alerts_delivered(world, registry, alert_webhook_url=webhook.url):
            await asyncio.to_thread(webhook.came.get, timeout=WEBHOOK_POLL_SECONDS + 5)
            return registry.get_sample_value("oldhost_sync_undelivered_alerts", {"host": HOST})

    assert asyncio.run(work()) == 1


def test_without_a_webhook_nothing_runs(world: MariaWorld) -> None:
    async def work() -> set[str]:
        async with alerts_delivered(world):
            return {thread.name for thread in threading.enumerate()}

    assert "alert-delivery" not in asyncio.run(work())


def test_a_worker_tells_of_alerts_before_it_has_reached_temporal(
    engine: Engine, database_url: str, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        raise_alert(connection, HOST, "temporal-away", "critical", "a")

    async def away(*_: object, **__: object) -> NoReturn:
        raise TemporalUnavailable((await asyncio.to_thread(webhook.came.get, timeout=30))["message"])

    for patched, stand_in in (("connect", away), ("share_among_threads", int), ("hold_many_objects", int)):
        monkeypatch.setattr(worker, patched, stand_in)
    settings = load_settings(
        _env_file=None, database_url=database_url, oldhost_url="http://127.0.0.1:9", alert_webhook_url=webhook.url
    )
    with pytest.raises(TemporalUnavailable, match=r"^a$"):
        asyncio.run(worker.run(settings))
