"""Alert delivery: a loop, separate from a role's own work, that posts the events of alerts to the webhook: opened, got
worse, closed. The rows in the database are authoritative. Relay and worker both have it: whichever is gone, the other
posts the alerts.

Nothing waits for delivery: an alert is raised when its row is committed, and an unavailable webhook delays only alerts.
Each event is posted at least once, oldest first, about a second after its row; one process at a time delivers a host's
events. While the webhook or the database is away, the loop retries with growing pauses and logs one line, which names
neither the alert nor the address. With a secret each message is signed, so that the receiver can verify its sender.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError

from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from oldhost_sync.policy.rules.alert_kinds import runbook
from oldhost_sync.settings import Settings
from oldhost_sync.store.alert_events import (
    SILENT_SECONDS_MAX,
    AlertEvent,
    held_lock,
    hosts_with_undelivered,
    mark_delivered,
    undelivered,
)
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.telemetry import DeliveryMetrics

logger = logging.getLogger(__name__)

# A critical alert is posted about a second after it is raised.
WEBHOOK_POLL_SECONDS = 1.0
# The longest pause while the webhook is away, and so the longest that an alert waits after its return.
PAUSE_SECONDS_MAX = 15.0
POST_SECONDS_MAX = 5.0
# Of the role's engine, at a time. The one that holds a host's lock is apart from the pool.
CONNECTIONS = 1
# The largest number of one host's events in a round; the next round continues after them.
PAGE = 100
# Events of one host that the webhook refuses before the round goes on to the next host.
REFUSALS_MAX = 5
EVENT_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = (
    f"X-OldHost-Sync-{name}" for name in ("Event", "Timestamp", "Signature")
)

assert (REFUSALS_MAX + 1) * POST_SECONDS_MAX < SILENT_SECONDS_MAX


class DeliveryFailed(Exception):  # noqa: N818 - says what happened
    """The webhook did not accept a message; try again later. `this_one`: it may accept others. `status`: its answer."""

    def __init__(self, why: str, *, this_one: bool = False, status: int | None = None) -> None:
        super().__init__(why)
        self.this_one = this_one
        self.status = status


@dataclass(slots=True)
class DeliveryRound:
    """What one round did. `trouble`: why the webhook did not accept an event; empty if it accepted all."""

    delivered: int = 0
    refused: int = 0
    trouble: str = ""
    away: bool = False


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The value of SIGNATURE_HEADER: HMAC-SHA256 over the timestamp, a dot, and the body as it is sent."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def headers(content: dict[str, Any], body: bytes, secret: str) -> dict[str, str]:
    """The headers for `content`, encoded as `body` and sent now; without a `secret` it is not signed."""
    timestamp = str(int(time.time()))
    named = {"Content-Type": "application/json", EVENT_HEADER: str(content.get("event_id", ""))}
    named[TIMESTAMP_HEADER] = timestamp
    return named | ({SIGNATURE_HEADER: signature(secret, timestamp, body)} if secret else {})


def post(url: str, content: dict[str, Any], *, secret: str = "") -> None:
    """Raises DeliveryFailed for any answer but 2xx, and after POST_SECONDS_MAX; its text does not show `url`, which may
    be a secret.
    """
    body = json.dumps(content).encode()
    post_body(url, body, headers(content, body, secret), POST_SECONDS_MAX)


def post_body(url: str, body: bytes, named: dict[str, str], seconds: float) -> None:
    """Post `body` with the headers `named`; raises as `post`, after `seconds`. The answer's body is not read."""
    request = urllib.request.Request(url, body, named, method="POST")  # noqa: S310 - settings allow http and https only
    handler = _InterruptibleHandler()
    deadline = threading.Timer(seconds, handler.interrupt)  # urllib's own timeout begins anew with each byte
    deadline.start()
    try:
        with urllib.request.build_opener(_NoRedirects, handler).open(request, timeout=seconds):
            if handler.interrupted:  # half an answer can look like a whole one
                raise TimeoutError
    except HTTPError as error:
        error.close()
        of_this_one = HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR
        too_many = error.code == HTTPStatus.TOO_MANY_REQUESTS
        raise DeliveryFailed(f"HTTP {error.code}", this_one=of_this_one and not too_many, status=error.code) from None
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        raise DeliveryFailed(type(cause).__name__) from None
    finally:
        deadline.cancel()


class _Connection(HTTPConnection):
    """Another thread can interrupt it, also before it has a socket: while the address is looked up, or connected to."""

    is_interrupted = False

    def connect(self) -> None:
        super().connect()
        if self.is_interrupted:
            raise TimeoutError

    def interrupt(self) -> None:
        """A thread that reads or writes gets an error, or the end of the stream."""
        self.is_interrupted = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


class _InterruptibleHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens one connection, which another thread can interrupt."""

    def __init__(self) -> None:
        urllib.request.HTTPSHandler.__init__(self)
        self._connection: _Connection | None = None
        self.interrupted = False

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connected(_Connection), request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connected(_TlsConnection), request)

    def interrupt(self) -> None:
        self.interrupted = True
        if self._connection is not None:
            self._connection.interrupt()

    def _connected(self, kind: type[_Connection]) -> Callable[..., HTTPConnection]:
        def connect(host: str, **options: Any) -> HTTPConnection:
            self._connection = kind(host, **options)
            return self._connection

        return connect


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET, which delivers nothing and may be answered with 200."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class Delivery:
    """Delivers the alerts of `hosts`. Call `run` in its own thread, and `leave` from any other. `counted` is called
    with the number of waiting events of each host.
    """

    engine: Engine
    url: str
    hosts: tuple[str, ...]
    post: Callable[[str, dict[str, Any]], None] = post
    counted: Callable[[str, int], None] | None = None
    _leaving: threading.Event = field(default_factory=threading.Event)
    _failures: int = 0
    # For each host, the last event that was refused: the next round begins after it, so that it blocks no other event.
    _behind: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Deliver until `leave`, and keep retrying in an outage."""
        pause = WEBHOOK_POLL_SECONDS
        while not self._leaving.wait(pause):
            pause = self.guarded_round()

    def leave(self) -> None:
        """End after the alert that is being posted; another process delivers the rest."""
        self._leaving.set()

    def guarded_round(self) -> float:
        """Run one round; returns the pause after it. An outage is logged once, and so is its end."""
        try:
            done = self.run_once()
        except (StoreError, SQLAlchemyError) as error:  # SQLAlchemyError: the pool has no free connection
            return self._failed(f"the database: {type(error).__name__}")
        except Exception as error:
            logger.exception("a round of alerts failed unexpectedly")
            return self._failed(f"an unforeseen error: {type(error).__name__}")
        if done.trouble and not done.delivered:
            return self._failed(f"the webhook: {done.trouble}")
        if self._failures:
            logger.info("alerts are delivered again")
        self._failures = 0
        return WEBHOOK_POLL_SECONDS

    def run_once(self) -> DeliveryRound:
        """One round over all hosts. Raises StoreError or SQLAlchemyError when the database is away."""
        done = DeliveryRound()
        waiting = run_in_transaction(self.engine, lambda connection: hosts_with_undelivered(connection, self.hosts))
        for host in self.hosts if self.counted else ():
            assert self.counted is not None
            self.counted(host, waiting.get(host, 0))
        for host in waiting:
            with held_lock(self.engine, host) as connection:
                if connection is not None:
                    self._deliver(connection, host, done)
            if done.away:
                break
        return done

    def _deliver(self, connection: Connection, host: str, done: DeliveryRound) -> None:
        refused = 0
        for event in self._page(connection, host):
            if self._leaving.is_set():
                return
            try:
                self.post(self.url, _shown(event))
            except DeliveryFailed as not_taken:
                done.trouble = str(not_taken)
                if not not_taken.this_one:
                    done.away = True
                    return
                self._behind[host] = event.event_id
                done.refused += 1
                refused += 1
                if refused >= REFUSALS_MAX:
                    return
            else:
                mark_delivered(connection, event)
                connection.commit()
                done.delivered += 1

    def _page(self, connection: Connection, host: str) -> list[AlertEvent]:
        """The events after the last refusal; if there are none, those from the oldest on. They are read under the lock,
        so none has been delivered yet.
        """
        page = undelivered(connection, host, PAGE, after_id=self._behind.pop(host, 0)) or undelivered(
            connection, host, PAGE
        )
        connection.commit()
        return page

    def _failed(self, why: str) -> float:
        if not self._failures:
            logger.warning("alerts can't be delivered (%s); they are kept and will be delivered later", why)
        self._failures += 1
        return min(WEBHOOK_POLL_SECONDS * 2.0 ** min(self._failures, 10), PAUSE_SECONDS_MAX)


_NAMED = ("host", "kind", "cause", "severity", "message", "count", "change_id", "acknowledged_by", "operator", "reason")


def _shown(event: AlertEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event": event.event,
        "id": event.alert_id,
        **{name: getattr(event, name) for name in _NAMED},
        "created_at": event.opened_at.isoformat(),
        "at": event.at.isoformat(),
        "runbook": runbook(event.kind),
    }


@asynccontextmanager
async def alerts_delivered(settings: Settings, engine: Engine, registry: CollectorRegistry) -> AsyncIterator[None]:
    """If a webhook is set, deliver alerts to it, in a separate thread because it may be slow."""
    metrics = DeliveryMetrics(registry)
    if settings.alert_webhook_url is None:
        yield
        return
    signed = partial(post, secret=settings.alert_webhook_secret or "")
    delivery = Delivery(engine, settings.alert_webhook_url, settings.hosts(), signed, metrics.count)
    thread = threading.Thread(target=delivery.run, name="alert-delivery", daemon=True)
    thread.start()
    try:
        yield
    finally:
        delivery.leave()
        await asyncio.to_thread(thread.join, 2 * POST_SECONDS_MAX)
