"""What a webhook's message is signed with, which files are refused, and when it is late."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.fate_webhooks import message, message_id, signed
from oldhost_sync.relay.late_webhooks import late_fact
from oldhost_sync.store.read.change_feed import FeedCursor
from oldhost_sync.store.webhook_cursors import WebhookState
from oldhost_sync.webhooks_file import is_safe, read_webhooks, secrets_of

# The example of Standard Webhooks' own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER = "whsec_" + base64.b64encode(bytes(24)).decode()
PLACE = FeedCursor(12, 1_690_000_000_000_000, 4711)
MOMENT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ROW: dict[str, Any] = {"change_id": 4711, "outcome": "NO_OP", "error": None, "processed_at": MOMENT, "source": "api:x"}


def secret_file(folder: Path, *lines: str) -> Path:
    file = folder / "secret"
    file.write_text("\n".join(lines))
    return file


def webhooks_file(folder: Path, text: str) -> Path:
    secret_file(folder, SECRET)
    file = folder / "webhooks.toml"
    file.write_text(text)
    return file


def test_a_message_is_signed_as_the_specification_signs_its_example(tmp_path: Path) -> None:
    headers = signed(BODY, ID, AT, secrets_of(secret_file(tmp_path, SECRET)))
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (ID, str(AT))
    assert headers["webhook-signature"] == SIGNATURE


def test_while_a_secret_is_replaced_both_sign(tmp_path: Path) -> None:
    signatures = signed(BODY, ID, AT, secrets_of(secret_file(tmp_path, OTHER, SECRET)))["webhook-signature"].split()
    assert len(signatures) == 2
    assert signatures[1] == SIGNATURE


def test_an_id_is_a_place_of_the_feed_without_the_dots_that_separate_what_is_signed() -> None:
    assert message_id(PLACE) == "f12_1690000000000000_4711"
    assert FeedCursor.parse(message_id(PLACE).replace("_", ".")) == PLACE


def test_a_message_has_type_time_and_an_entry_of_the_feed_without_who_made_the_change() -> None:
    content = json.loads(message("oldhost", ROW))
    assert (content["type"], content["timestamp"]) == ("change.no_op", "2026-05-01T12:00:00Z")
    assert content["data"] == {
        "host": "oldhost",
        "change_id": 4711,
        "outcome": "NO_OP",
        "error": None,
        "processed_at": "2026-05-01T12:00:00Z",
    }


def test_oldhosts_words_are_without_what_they_may_repeat_of_a_payload() -> None:
    content = json.loads(message("oldhost", ROW | {"error": "guest 'Ada Byron' has no room 17"}))
    assert content["data"]["error"] == "guest # has no room #"


@pytest.mark.parametrize(
    "url",
    [
        *("https://hooks.example/fates", "https://10.0.0.7:8443/x"),
        *("http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]:8/x"),
    ],
)
def test_an_address_is_https_or_on_this_machine(url: str) -> None:
    assert is_safe(url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://hooks.example/", "http://10.0.0.7/", "http://localhost.example/", "ftp://127.0.0.1/", ""),
        *("https://u:p@hooks.example/", "https:///x", "https://h.example:x/", "https://h.example/a b", "file:///etc"),
    ],
)
def test_others_are_refused(url: str) -> None:
    assert not is_safe(url)


def test_a_table_names_a_webhook_and_its_repr_shows_neither_address_nor_secret(tmp_path: Path) -> None:
    file = webhooks_file(tmp_path, '[webhooks.shop]\nurl = "https://h.example/hunter2"\nsecret_file = "secret"\n')
    (webhook,) = read_webhooks(file, ("oldhost",))
    assert (webhook.name, webhook.host, webhook.source, len(webhook.secrets)) == ("shop", "oldhost", None, 1)
    assert "hunter2" not in repr(webhook)
    assert repr(webhook.secrets[0]) not in repr(webhook)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('url = "http://h.example/hunter2"\nsecret_file = "secret"', "line 2: webhooks.shop.url: give it as https"),
        ('url = "https://h.example/"\nsecret_file = "nowhere"', "secret_file: it can't be read"),
        ('url = "https://h.example/"\nsecret_file = "webhooks.toml"', "secret_file: give one secret or two"),
        ('url = "https://h.example/"\nsecret_file = "secret"\nhost = "x"', "host: this host is not served here"),
        ('url = "https://h.example/"\nsecret_file = "secret"\nurls = "x"', "urls: there is no such setting"),
        ("url = 7", "url: give it as text"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_without_its_value(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_webhooks(webhooks_file(tmp_path, f"[webhooks.shop]\n{table}\n"), ("oldhost",))
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("lines", [(), ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",), ("whsec_c2hvcnQ=",), (SECRET,) * 3])
def test_a_secret_is_as_standard_webhooks_has_it(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="whsec_") as refused:
        secrets_of(secret_file(tmp_path, *lines))
    assert "MfKQ" not in str(refused.value)


def state(behind_s: int, *, is_disabled: bool = False) -> WebhookState:
    return WebhookState("oldhost", "shop", PLACE, "HTTP 500", is_disabled, 1, behind_s)


def test_a_webhook_is_late_when_a_fate_waits_for_long_and_the_alert_says_why() -> None:
    assert late_fact(state(59)) is None
    late = late_fact(state(60))
    assert late is not None
    assert "HTTP 500" in late.why
    assert not late.at_once


def test_a_disabled_webhook_is_told_at_once() -> None:
    disabled = late_fact(state(0, is_disabled=True))
    assert disabled is not None
    assert disabled.at_once
