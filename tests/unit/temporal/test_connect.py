"""Connecting to Temporal with settings that can't be used: an outage like any other, told with its reason."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

import pytest

from oldhost_sync.policy.writer_policy import WriterPolicy
from oldhost_sync.relay.writers import TemporalDoesNotAnswer, TemporalWriters
from oldhost_sync.temporal.client import TemporalUnavailable, connect
from oldhost_sync.temporal.writer_client import WriterClient, WriterUnavailable


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"TEMPORAL_TLS_CLIENT_CERT_PATH": "/nope/crt", "TEMPORAL_TLS_CLIENT_KEY_PATH": "/nope/key"}, "/nope/crt"),
        ({"TEMPORAL_ADDRESS": "host:1:x"}, "invalid port number"),
        ({"TEMPORAL_PROFILE": "nobody"}, "TEMPORAL_PROFILE"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "can't be reached at 127.0.0.1:1"),
    ],
)
def test_whatever_is_wrong_temporal_is_unavailable_and_its_users_say_why(
    settings: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TemporalUnavailable, match=reason):
        asyncio.run(connect())
    with pytest.raises(TemporalDoesNotAnswer, match=reason):
        asyncio.run(TemporalWriters(WriterPolicy()).health("oldhost"))
    with pytest.raises(WriterUnavailable, match=reason):
        asyncio.run(WriterClient("oldhost", query_seconds=5, update_seconds=5, connect=connect).query("status"))


def test_no_line_of_the_configuration_file_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may hold a key, and the parser quotes it."""
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default]\napi_key = "secret')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    with pytest.raises(TemporalUnavailable, match="TEMPORAL_CONFIG_FILE") as told:
        asyncio.run(connect())
    assert "secret" not in "".join(traceback.format_exception(told.value))
