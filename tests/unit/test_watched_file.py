"""What is removed from a file is not valid any more, without a restart; the log says that it changed, and not how."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload

from oldhost_sync.secret_keys import encryption_keys, signing_keys
from oldhost_sync.settings import Settings, SettingsError, load_settings
from oldhost_sync.temporal.payload_encryption import EncryptPayloads, KeyMissing
from oldhost_sync.watched_file import LOOKED_AT_EVERY_SECONDS, WatchedFile, read_lines
from tests.mounted_secret import MountedSecret

OLD, NEW = "o" * 32, "n" * 32


class Clock:
    """Every second look is a second later."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def entry(key_id: str, byte: int) -> str:
    return f"{key_id}={base64.b64encode(bytes([byte]) * 32).decode()}"


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "keys", acts=f"{OLD}\n", temporal=entry("2026", 1))


@pytest.fixture
def settings(secret: MountedSecret, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("oldhost_sync.watched_file.LOOKED_AT_EVERY_SECONDS", 0.0)
    return load_settings(_env_file=None, act_keys_file=secret["acts"], temporal_keys_file=secret["temporal"])


def test_a_mounted_secret_that_was_replaced_is_read_again_within_a_second(secret: MountedSecret) -> None:
    clock = Clock()
    watched = WatchedFile(secret["acts"], read_lines, "SYNC_X_FILE", clock=clock)
    secret.replace(acts=f"# the new one\n{NEW}\n", temporal="")
    assert watched.value() == [OLD]
    clock.seconds += LOOKED_AT_EVERY_SECONDS
    assert watched.value() == ["", NEW]


def test_a_key_that_is_as_long_as_the_one_before_is_noticed(secret: MountedSecret, settings: Settings) -> None:
    keys = signing_keys(settings)
    secret.replace(acts=f"{NEW}\n", temporal="")
    assert list(keys) == [NEW]


def test_a_key_that_signs_acts_is_taken_away_without_a_restart(secret: MountedSecret, settings: Settings) -> None:
    keys = signing_keys(settings)
    assert list(keys) == [OLD]
    secret.replace(acts=f"{NEW}, {OLD}", temporal="")
    assert list(keys) == [NEW, OLD]
    secret.replace(acts=NEW, temporal="")
    assert (list(keys), len(keys), keys[0]) == ([NEW], 1, NEW)


def test_a_key_that_encrypts_is_replaced_without_a_restart(secret: MountedSecret, settings: Settings) -> None:
    codec = EncryptPayloads(encryption_keys(settings))
    (sealed,) = asyncio.run(codec.encode([Payload(data=b"Ana")]))
    secret.replace(acts=OLD, temporal=f"{entry('2027', 2)}\n{entry('2026', 1)}\n")
    assert asyncio.run(codec.decode([sealed]))[0].data == b"Ana"
    assert asyncio.run(codec.encode([Payload(data=b"Ben")]))[0].metadata["encryption-key-id"] == b"2027"
    secret.replace(acts=OLD, temporal=entry("2027", 2))
    with pytest.raises(KeyMissing):
        asyncio.run(codec.decode([sealed]))


def test_a_file_of_keys_that_is_invalid_changes_nothing_and_the_log_holds_no_key(
    secret: MountedSecret, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keys = signing_keys(settings)
    secret.replace(acts="hunter2", temporal="")
    assert [list(keys), list(keys)] == [[OLD], [OLD]]
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "SYNC_ACT_KEYS_FILE can't be used, so what was known before stays valid"
    ]
    secret.replace(acts=NEW, temporal="")
    assert list(keys) == [NEW]
    assert caplog.messages[1:] == ["SYNC_ACT_KEYS_FILE has changed and was read again"]
    assert not [word for word in ("hunter2", OLD, NEW) if word in caplog.text]


def test_a_file_of_keys_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    settings = load_settings(_env_file=None, temporal_keys_file=tmp_path / "none")
    with pytest.raises(SettingsError, match=r"SYNC_TEMPORAL_KEYS_FILE: .*No such file"):
        encryption_keys(settings)


def test_keys_are_in_one_place(secret: MountedSecret) -> None:
    with pytest.raises(SettingsError, match="SYNC_ACT_KEYS and SYNC_ACT_KEYS_FILE are both set"):
        signing_keys(load_settings(_env_file=None, act_keys=OLD, act_keys_file=secret["acts"]))
