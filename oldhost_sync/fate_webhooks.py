"""Fates as signed webhooks (Standard Webhooks): the feed in its order, one fate a message, one request at a time.

A message's id is the fate's place in the feed: the same at each try, after a restart and in a replay, so that a
receiver can drop doubles. A batch would have another content at each try, as fates are added. A fate is behind the
cursor once it was accepted, so it is posted at least once. A refused one is tried again with growing pauses, and
nothing overtakes it; 410 disables the webhook until an operator replays. Each webhook has a thread of its own, and
together they have an engine of their own: a slow receiver delays nobody else. A lock elects one sender, for efficiency
only (`held_lock`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from oldhost_sync.delivery import DeliveryFailed, post_body
from oldhost_sync.policy.rules.alert_cause import REASON_LENGTH_MAX, cause_of
from oldhost_sync.settings import Settings, SettingsError
from oldhost_sync.store import webhook_cursors
from oldhost_sync.store.alert_events import SILENT_SECONDS_MAX, held_lock
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.read.change_feed import CursorForgotten, CursorUnknown, FeedCursor, FeedPage, read_feed
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.webhook_cursors import WebhookState
from oldhost_sync.webhooks_file import Webhook, read_webhooks

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# Standard Webhooks advises 15 to 30 s.
ANSWER_SECONDS_MAX = 15.0
# Between two tries; also how late a receiver's return may be noticed.
TRY_AGAIN_SECONDS_MAX = 300.0
READ_AT_ONCE = 100

assert ANSWER_SECONDS_MAX < SILENT_SECONDS_MAX


def webhooks_of(settings: Settings) -> tuple[Webhook, ...]:
    """Raises SettingsError for mistakes in their file."""
    if settings.webhooks_file is None:
        return ()
    try:
        return read_webhooks(settings.webhooks_file, settings.hosts())
    except (OSError, ValueError) as error:
        raise SettingsError(f"SYNC_WEBHOOKS_FILE: {error}") from None


def message_id(place: FeedCursor) -> str:
    """A cursor of the feed, without the dots that separate what is signed."""
    return place.text.replace(".", "_")


def message(host: str, row: Mapping[str, Any]) -> bytes:
    """The body: an entry of the feed. OldHost's words are without quoted text and numbers, as for viewers."""
    error = row["error"] and cause_of(row["error"], REASON_LENGTH_MAX)
    data = {"host": host, **{name: value for name, value in row.items() if name != "source"}, "error": error}
    content = {"type": f"change.{row['outcome'].lower()}", "timestamp": row["processed_at"], "data": data}
    return json.dumps(content, default=_as_text, separators=(",", ":")).encode()


def signed(body: bytes, named: str, at_s: int, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of a message; with two secrets it has two signatures."""
    content = b"%s.%d.%s" % (named.encode(), at_s, body)
    macs = [base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets]
    return {
        "Content-Type": "application/json",
        "webhook-id": named,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{mac}" for mac in macs),
    }


def _as_text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class WebhookSender:
    """Call `run` in its own thread, and `leave` from any other."""

    engine: Engine
    webhook: Webhook
    post: Callable[[str, bytes, dict[str, str], float], None] = post_body
    _leaving: threading.Event = field(default_factory=threading.Event)
    _failures: int = 0

    def run(self) -> None:
        """Send until `leave`, through every outage."""
        pause = 0.0
        while not self._leaving.wait(pause):
            pause = self.guarded_round()

    def leave(self) -> None:
        """End after the message that is being sent."""
        self._leaving.set()

    def guarded_round(self) -> float:
        """One round; returns the pause after it. The first failure is logged, and its end."""
        try:
            self.run_once()
        except (DeliveryFailed, StoreError, SQLAlchemyError) as error:
            return self._failed(str(error) if isinstance(error, DeliveryFailed) else type(error).__name__)
        except Exception as error:
            logger.exception("a round of webhook %s failed unexpectedly", self.webhook.name)
            return self._failed(type(error).__name__)
        if self._failures:
            logger.info("webhook %s accepts fates again", self.webhook.name)
        self._failures = 0
        return LOOK_SECONDS

    def run_once(self) -> None:
        """Send what is new. Raises DeliveryFailed, and StoreError or SQLAlchemyError."""
        host, name = self.webhook.host, self.webhook.name
        if run_in_transaction(self.engine, self._has_news):
            with held_lock(self.engine, f"{host}/{name}") as connection:
                while connection is not None and self._send_page(connection):
                    pass

    def _has_news(self, connection: Connection) -> bool:
        state = webhook_cursors.find(connection, self.webhook.host, self.webhook.name)
        if state is None:
            webhook_cursors.begin(connection, self.webhook.host, self.webhook.name)
        return state is not None and not state.is_disabled and bool(self._page(connection, state, 1).rows)

    def _page(self, connection: Connection, state: WebhookState, limit: int) -> FeedPage:
        """Of a feed that does not know the cursor any more, because it was pruned or restored, all that there is."""
        try:
            return read_feed(connection, state.host, state.cursor, limit=limit)
        except (CursorForgotten, CursorUnknown) as error:
            logger.warning("webhook %s: %s; it gets all fates that there are", state.name, error)
            webhook_cursors.advance(connection, state, error.oldest)
            return read_feed(connection, state.host, error.oldest, limit=limit)

    def _send_page(self, connection: Connection) -> bool:
        """Whether there is more to send."""
        state = webhook_cursors.find(connection, self.webhook.host, self.webhook.name)
        if state is None or state.is_disabled:
            return False
        page = self._page(connection, state, READ_AT_ONCE)
        connection.commit()
        for row, place in zip(page.rows, page.places, strict=True):
            if self._leaving.is_set():
                return False
            if self.webhook.source in {None, row["source"]}:
                self._send(connection, state, row, place)
            elif place != page.cursor:
                continue
            if not webhook_cursors.advance(connection, state, place):
                return False
            connection.commit()
            state = WebhookState(state.host, state.name, place, None, is_disabled=False)
        return page.more

    def _send(self, connection: Connection, state: WebhookState, row: Mapping[str, Any], place: FeedCursor) -> None:
        body = message(state.host, row)
        named = signed(body, message_id(place), int(time.time()), self.webhook.secrets)
        try:
            self.post(self.webhook.url, body, named, ANSWER_SECONDS_MAX)
        except DeliveryFailed as not_taken:
            webhook_cursors.refuse(connection, state, str(not_taken), disable=not_taken.status == HTTPStatus.GONE)
            connection.commit()
            raise

    def _failed(self, why: str) -> float:
        if not self._failures:
            logger.warning("webhook %s: fates wait, and will be delivered later (%s)", self.webhook.name, why)
        self._failures += 1
        pause = min(LOOK_SECONDS * 2.0 ** min(self._failures, 10), TRY_AGAIN_SECONDS_MAX)
        return pause * (0.5 + random.random() / 2)


@asynccontextmanager
async def fates_posted(settings: Settings) -> AsyncIterator[frozenset[tuple[str, str]]]:
    """Send fates to the webhooks of the settings; gives host and name of each. Raises SettingsError."""
    webhooks = webhooks_of(settings)
    if not webhooks:
        yield frozenset()
        return
    engine = create_engine(settings.need_database_url(), pool_size=len(webhooks))
    senders = [WebhookSender(engine, webhook) for webhook in webhooks]
    threads = [
        threading.Thread(target=sender.run, name=f"webhook-{sender.webhook.name}", daemon=True) for sender in senders
    ]
    for thread in threads:
        thread.start()
    try:
        yield frozenset((webhook.host, webhook.name) for webhook in webhooks)
    finally:
        for sender in senders:
            sender.leave()
        until = time.monotonic() + ANSWER_SECONDS_MAX
        for thread in threads:
            await asyncio.to_thread(partial(thread.join, max(0.0, until - time.monotonic())))
        engine.dispose()
