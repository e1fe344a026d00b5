"""A token for hosts that this API does not serve is told in its log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oldhost_sync.roles.api import warn_of_tokens_for_other_hosts
from oldhost_sync.settings import load_settings


def test_a_token_for_a_host_that_is_not_served_here_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNC_HOST", "north")
    monkeypatch.setenv("SYNC_API_TOKENS", f"shop:app@nroth:{'a' * 64},desk:ops@north:{'b' * 64},all:ops:{'c' * 64}")
    listed = tmp_path / "tokens"
    listed.write_text(f"kiosk:app@south+north:{'d' * 64}\n")
    monkeypatch.setenv("SYNC_API_TOKENS_FILE", str(listed))
    with caplog.at_level(logging.WARNING):
        warn_of_tokens_for_other_hosts(load_settings())
    assert [record.getMessage() for record in caplog.records] == [
        "the token of shop is for hosts not served here: nroth",
        "the token of kiosk is for hosts not served here: south",
    ]
