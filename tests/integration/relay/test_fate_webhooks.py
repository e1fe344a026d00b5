"""Fates to a real receiver, from a real database: each at least once, in the feed's order, in nobody's way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync import fate_webhooks
from oldhost_sync.delivery import DeliveryFailed, post_body
from oldhost_sync.fate_webhooks import LOOK_SECONDS, WebhookSender
from oldhost_sync.store import webhook_cursors
from oldhost_sync.store.alert_events import held_lock
from oldhost_sync.store.read.change_feed import BEGINNING, FeedCursor
from oldhost_sync.webhooks_file import Webhook as Subscription
from tests.conformance.maria_world import HOST, MariaWorld
from tests.integration.activities.webhook import Webhook, serving
from tests.integration.api.test_feed import end

pytestmark = pytest.mark.mariadb

KEY, NEW_KEY = bytes(range(24)), bytes(range(24, 48))


@pytest.fixture
def world(engine: Engine) -> MariaWorld:
    return MariaWorld(engine, 1)


@pytest.fixture
def receiver() -> Iterator[Webhook]:
    with serving() as webhook:
        yield webhook


def subscription(url: str, name: str = "shop", source: str | None = None, *keys: bytes) -> Subscription:
    return Subscription(name, HOST, url, keys or (KEY,), source)


def begun(world: MariaWorld, url: str, **given: Any) -> WebhookSender:
    """A sender whose webhook gets the fates that are decided from now on."""
    sender = WebhookSender(world.engine, subscription(url, **given))
    sender.run_once()
    return sender


def decide(world: MariaWorld, count: int, source: str = "python") -> list[int]:
    changes = [world.record(f"u{number}", source=source) for number in range(count)]
    for change_id in changes:
        with world.engine.begin() as connection:
            end(connection, change_id)
    return changes


def came(receiver: Webhook) -> list[int]:
    return [receiver.came.get()["data"]["change_id"] for _ in range(receiver.came.qsize())]


def state_of(world: MariaWorld, name: str = "shop") -> webhook_cursors.WebhookState:
    with world.engine.begin() as connection:
        (found,) = [each for each in webhook_cursors.states(connection, (HOST,)) if each.name == name]
        return found


def replay(world: MariaWorld, since: FeedCursor) -> None:
    with world.engine.begin() as connection:
        assert webhook_cursors.replay(connection, HOST, "shop", since)


def test_a_webhook_gets_each_fate_from_its_beginning_on_once_and_in_their_order(
    world: MariaWorld, receiver: Webhook
) -> None:
    decide(world, 1)
    sender = begun(world, receiver.url)
    decided = decide(world, 130)
    sender.run_once()
    sender.run_once()
    assert came(receiver) == decided
    assert (state_of(world).behind, state_of(world).trouble) == (0, None)


def test_a_receiver_can_verify_each_message(world: MariaWorld, receiver: Webhook) -> None:
    sender = WebhookSender(world.engine, subscription(receiver.url, "shop", None, NEW_KEY, KEY))
    sender.run_once()
    decide(world, 1)
    sender.run_once()
    ((headers, body),) = receiver.raw
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    macs = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in (NEW_KEY, KEY)]
    assert headers["webhook-signature"] == " ".join(f"v1,{mac}" for mac in macs)
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


def test_a_refused_fate_comes_again_with_its_id_and_nothing_overtakes_it(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 3)
    receiver.answer = lambda _: 500
    pauses = [sender.guarded_round() for _ in range(3)]
    assert came(receiver) == [decided[0]] * 3
    assert len({headers["webhook-id"] for headers, _ in receiver.raw}) == 1
    assert pauses[0] < pauses[2]
    assert (state_of(world).trouble, state_of(world).behind) == ("HTTP 500", 3)
    receiver.answer = lambda _: 204
    assert sender.guarded_round() == LOOK_SECONDS
    assert came(receiver) == decided
    assert state_of(world).trouble is None


def test_a_redirect_is_not_followed(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decide(world, 1)
    receiver.answer = lambda _: 307
    with pytest.raises(DeliveryFailed, match="HTTP 307"):
        sender.run_once()
    assert receiver.methods == ["POST"]


def test_410_disables_a_webhook_until_somebody_replays(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 2)
    before = state_of(world).cursor
    receiver.answer = lambda _: 410
    sender.guarded_round()
    assert sender.guarded_round() == LOOK_SECONDS
    assert (came(receiver), state_of(world).is_disabled) == ([decided[0]], True)
    receiver.answer = lambda _: 200
    replay(world, before)
    sender.run_once()
    assert came(receiver) == decided


def test_a_replay_brings_the_same_ids(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 3)
    sender.run_once()
    replay(world, BEGINNING)
    sender.run_once()
    assert came(receiver) == decided * 2
    ids = [headers["webhook-id"] for headers, _ in receiver.raw]
    assert ids[:3] == ids[3:]


def test_a_replay_while_a_message_is_on_its_way_is_not_lost(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 3)

    def replays(url: str, body: bytes, named: dict[str, str], seconds: float) -> None:
        post_body(url, body, named, seconds)
        if named["webhook-id"].endswith(f"_{decided[2]}"):
            sender.post = post_body
            replay(world, BEGINNING)

    sender.post = replays
    sender.run_once()
    sender.run_once()
    assert came(receiver) == decided * 2


def test_a_webhook_of_one_source_gets_its_fates_only(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url, source="api:shop")
    decide(world, 2, "api:other")
    ours = decide(world, 1, "api:shop")
    decide(world, 2, "api:other")
    sender.run_once()
    assert came(receiver) == ours
    assert state_of(world).behind == 0


def test_a_feed_that_was_restored_is_sent_from_its_beginning(world: MariaWorld, receiver: Webhook) -> None:
    decided = decide(world, 2)
    sender = begun(world, receiver.url)
    replay(world, FeedCursor(77, 1_700_000_000_000_000, 99))
    sender.run_once()
    sender.run_once()
    assert came(receiver) == decided


def test_a_sender_that_finds_another_at_work_sends_nothing(world: MariaWorld, receiver: Webhook) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 1)
    with held_lock(world.engine, f"{HOST}/shop"):
        sender.run_once()
        assert came(receiver) == []
    sender.run_once()
    assert came(receiver) == decided


def test_two_senders_under_load_lose_nothing_and_keep_the_order(world: MariaWorld, receiver: Webhook) -> None:
    senders = [begun(world, receiver.url) for _ in range(2)]
    threads = [threading.Thread(target=sender.run) for sender in senders]
    for thread in threads:
        thread.start()
    decided = decide(world, 60)
    got: list[int] = []
    while not set(decided) <= set(got):
        got.append(receiver.came.get(timeout=30)["data"]["change_id"])
    for sender in senders:
        sender.leave()
    for thread in threads:
        thread.join()
    assert list(dict.fromkeys(got)) == decided


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "closes"])
def test_a_receiver_that_does_not_answer_delays_no_other(
    world: MariaWorld, receiver: Webhook, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fate_webhooks, "ANSWER_SECONDS_MAX", 1.0)
    over = threading.Event()

    def take() -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                over.wait(10 if hangs else 0)

    with socket.create_server(("127.0.0.1", 0)) as server:
        taking = threading.Thread(target=take)
        taking.start()
        dead = begun(world, f"http://127.0.0.1:{server.getsockname()[1]}/", name="dead")
        well = begun(world, receiver.url)
        decided = decide(world, 2)
        stuck = threading.Thread(target=dead.guarded_round)
        stuck.start()
        well.run_once()
        assert came(receiver) == decided
        stuck.join(20)
        over.set()
        taking.join()
    assert state_of(world, "dead").trouble in {
        "TimeoutError",
        "RemoteDisconnected",
        "ConnectionResetError",
        "BrokenPipeError",
    }
    assert state_of(world, "dead").behind == 2


def send_and_die(database_url: str, webhook_url: str) -> None:
    from oldhost_sync.store.engine import create_engine

    def dies(url: str, body: bytes, named: dict[str, str], seconds: float) -> None:
        post_body(url, body, named, seconds)
        os.kill(os.getpid(), 9)

    WebhookSender(create_engine(database_url, pool_size=1), subscription(webhook_url), dies).run_once()


def test_a_sender_that_is_killed_before_it_has_committed_sends_the_same_message_again(
    world: MariaWorld, receiver: Webhook
) -> None:
    sender = begun(world, receiver.url)
    decided = decide(world, 2)
    url = world.engine.url.render_as_string(hide_password=False)
    process = multiprocessing.get_context("spawn").Process(target=send_and_die, args=(url, receiver.url))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    deadline = time.monotonic() + 20
    while state_of(world).behind and time.monotonic() < deadline:
        sender.run_once()  # until MariaDB has noticed, the dead one has the lock
    assert came(receiver) == [decided[0], *decided]
    ids = [headers["webhook-id"] for headers, _ in receiver.raw]
    assert ids[0] == ids[1]


def test_a_changed_secret_signs_without_a_restart(world: MariaWorld, receiver: Webhook, tmp_path: Path) -> None:
    from oldhost_sync.watched_file import WatchedFile, WatchedList
    from oldhost_sync.webhooks_file import secrets_of

    now = [0.0]
    file = tmp_path / "secret"
    file.write_text("whsec_" + base64.b64encode(KEY).decode())
    secrets = WatchedList(WatchedFile(file, secrets_of, "a secret", clock=lambda: now[0]))
    sender = WebhookSender(world.engine, Subscription("shop", HOST, receiver.url, secrets))
    sender.run_once()
    decide(world, 1)
    file.write_text("\n".join("whsec_" + base64.b64encode(key).decode() for key in (NEW_KEY, KEY)))
    now[0] += 2
    sender.run_once()
    ((headers, _),) = receiver.raw
    assert len(headers["webhook-signature"].split()) == 2
