"""A token's life at a served API: renewed without a restart, expired, last used; and refused sign-ins in the log."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.api.access import Tokens
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.store.access import last_uses
from tests.integration.api.conftest import HOST, ScriptedWriter, a_client, a_token, served


def test_a_token_is_renewed_without_a_restart(database_url: str, writer: ScriptedWriter, tmp_path: Path) -> None:
    file, now = tmp_path / "tokens", [0.0]
    file.write_text(a_token("shop", "app").entry)
    tokens = Tokens([], file=file, clock=lambda: now[0])
    app = create_app(Dependencies(HOST, tokens, Database(connect_for_api(database_url)), writer))
    with served(app) as address, a_client(address, "shop") as old, a_client(address, "renewed") as new:
        assert (old.get("/api/units").status_code, new.get("/api/units").status_code) == (200, 401)
        file.write_text(a_token("renewed", "app").entry)
        now[0] += 2
        assert (old.get("/api/units").status_code, new.get("/api/units").status_code) == (401, 200)


def test_an_expired_token_is_refused_and_the_log_names_whose_it_is(
    database_url: str, writer: ScriptedWriter, caplog: pytest.LogCaptureFixture
) -> None:
    today = datetime.now(UTC)
    token = replace(a_token("shop", "app"), last_day=today.date())
    tokens = Tokens([token], now=lambda: today + timedelta(days=1))
    caplog.set_level(logging.WARNING)
    with served(create_app(Dependencies(HOST, tokens, Database(connect_for_api(database_url)), writer))) as address:
        for secret in ("shop", "hunter2"):
            with a_client(address, secret) as client:
                for _ in range(3):
                    assert client.get("/api/units").status_code == 401
    assert [message for message in caplog.messages if "sign-in" in message] == [
        "refused a sign-in from 127.0.0.1: the token of shop, which has expired",
        "refused a sign-in from 127.0.0.1: an unknown token",
    ]
    assert "hunter2" not in caplog.text


def test_a_token_s_last_use_is_kept_once_however_many_requests_there_were(
    database_url: str, writer: ScriptedWriter, engine: Engine
) -> None:
    tokens = Tokens([a_token("shop", "app"), a_token("vera", "viewer")])
    app = create_app(Dependencies(HOST, tokens, Database(connect_for_api(database_url)), writer))
    with served(app) as address, a_client(address, "shop") as shop:
        for _ in range(5):
            shop.get("/api/units")
        with engine.connect() as connection:
            assert last_uses(connection, HOST) == {}
    with engine.connect() as connection:
        (used,) = last_uses(connection, HOST).items()
        assert connection.execute(text("SELECT name FROM token_uses")).scalars().all() == ["shop"]
    assert used[0] == a_token("shop", "app").fingerprint
    assert abs(used[1].timestamp() - time.time()) < 60
