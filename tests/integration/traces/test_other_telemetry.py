"""FastAPI has spans of its own, with whole paths, and so with idempotency keys: they stay off, whatever is set."""

from __future__ import annotations

import pytest

from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from tests.conformance.maria_world import HOST
from tests.integration.api.conftest import TOKENS, ScriptedWriter, a_client, served
from tests.monitoring.collector import collector

pytestmark = pytest.mark.mariadb


def test_the_standard_variables_alone_send_nothing_anywhere(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as kept:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", kept.address)
        monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
        app = create_app(Dependencies(HOST, TOKENS, Database(connect_for_api(database_url)), ScriptedWriter()))
        with served(app) as address, a_client(address, "shop") as client:  # FastAPI flushes its own when it ends
            assert client.get("/api/changes/key-of-the-application").status_code == 404
    assert kept.posts == 0
