"""Webhooks at the terminal, on a real stack."""

from __future__ import annotations

import pytest

from oldhost_sync.environment import in_database, settings
from oldhost_sync.store import webhook_cursors
from tests.integration.cli.conftest import Command

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes]


def test_a_webhook_is_shown_and_replayed_at_the_terminal(command: Command) -> None:
    config = settings()
    assert "No webhook has begun" in command("webhooks").out
    in_database(config, lambda connection: webhook_cursors.begin(connection, config.host, "shop"))
    (shop,) = command("webhooks", "--json").json
    assert (shop["name"], shop["state"]) == ("shop", "accepting")
    because = ("--reason", "it was restored", "--operator", "ada")
    assert command("webhooks", "replay", "shop", "--from", "oldest", *because).code == 0
    (shop,) = command("webhooks", "--json").json
    assert shop["cursor"] == "f0.0.0"
    assert command("webhooks", "replay", "shop", "--from", shop["cursor"].replace(".", "_"), *because).code == 0
    assert "shop" in command("webhooks").out
    assert "webhook_replay" in command("audit").out
    for since in ("yesterday", "f77.1700000000000000.99"):
        refused = command("webhooks", "replay", "shop", "--from", since, *because)
        assert refused.code != 0
        assert "cursor" in refused.err
    assert command("webhooks", "replay", "nobody", "--from", "latest", *because).code == 2
