from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.alerts import AlertActivities
from tests.conformance.maria_world import HOST, MariaWorld
from workflows import messages

pytestmark = pytest.mark.mariadb

BAN = messages.Alert(HOST, "ban", "critical", "OldHost bans us", "ban")


class Webhook:
    def __init__(self) -> None:
        self.status = 200
        self.posted: list[dict[str, Any]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(webhook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    webhook = Webhook()
    thread = threading.Thread(target=webhook.server.serve_forever)
    thread.start()
    yield webhook
    webhook.server.shutdown()
    thread.join()
    webhook.server.server_close()


def raise_alert(world: MariaWorld, alert: messages.Alert, url: str | None = None) -> None:
    ActivityEnvironment().run(AlertActivities(world.engine, url).raise_alert, alert)


def test_an_alert_is_a_row_once_per_cause_until_it_is_closed(world: MariaWorld) -> None:
    raise_alert(world, BAN)
    raise_alert(world, BAN)
    assert world.read("SELECT kind, severity, is_open FROM alerts") == [("ban", "critical", 1)]
    raise_alert(world, messages.Alert(HOST, "ban", "critical", "", "ban", close=True))
    raise_alert(world, BAN)
    assert world.read("SELECT is_open FROM alerts ORDER BY id") == [(None,), (1,)]


def test_the_webhook_is_told_once(world: MariaWorld, webhook: Webhook) -> None:
    raise_alert(world, BAN, webhook.url)
    raise_alert(world, BAN, webhook.url)
    assert [(one["kind"], one["message"]) for one in webhook.posted] == [("ban", "OldHost bans us")]


def test_a_webhook_that_is_away_is_told_later(world: MariaWorld, webhook: Webhook) -> None:
    webhook.status = 503
    with pytest.raises(OSError):
        raise_alert(world, BAN, webhook.url)
    assert world.read("SELECT delivered_at FROM alerts") == [(None,)]
    webhook.status = 200
    raise_alert(world, BAN, webhook.url)
    assert len(webhook.posted) == 2
    assert world.read("SELECT COUNT(*) FROM alerts WHERE delivered_at IS NULL") == [(0,)]
