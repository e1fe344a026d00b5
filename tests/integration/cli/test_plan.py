"""Plans of what waits now, and of what was recorded, from the running product's database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.cli.conftest import Command

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes]


def submit(command: Command, entity: str, status: str) -> None:
    payload = json.dumps({"status": status})
    done = command("submit", "--entity", entity, "--event", "unit_status_changed", "--payload", payload)
    assert done.code == 0, done


def test_a_plan_from_now_counts_what_is_outstanding_and_scheduled(command: Command) -> None:
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    submit(command, "unit/planned", "Dirty")
    command(
        "submit", "--entity", "unit/planned", "--event", "checked_out", "--payload", "{}", "--key", "plan-2",
        "--not-before", later,
    )  # fmt: skip
    figures = command("plan", "--from-now", "--json").json
    assert figures["now"]["by_class"]["LWW"]["outstanding"] >= 1
    assert figures["now"]["by_class"]["TXN"]["scheduled"] >= 1
    assert figures["promises"]["consistency within 4 h"] is True
    assert 7_000 < figures["drained_s"] < 7_300
    shown = command("plan", "--from-now")
    assert shown.code == 0
    assert "scheduled" in shown.out


def test_a_replay_compares_what_was_recorded_with_other_settings(command: Command) -> None:
    for state in ("Dirty", "Clean"):
        submit(command, "unit/replayed", state)
    today = datetime.now(UTC).date()
    time_of_it = f"{today - timedelta(days=1)}..{today + timedelta(days=2)}"
    figures = command("plan", "--replay", time_of_it, "--latency-ms", "10", "--json").json
    changes = {figures[name]["changes"] for name in ("as_it_went", "as_set", "with_these_settings")}
    assert len(changes) == 1
    assert changes.pop() >= 2
    assert figures["with_these_settings"]["promises"]["consistency within 4 h"] is True
    shown = command("plan", "--replay", time_of_it, "--debounce-s", "0").out
    for word in ("as it went", "with these settings", "late emergencies", "without the bans, pauses and outages"):
        assert word in " ".join(shown.split())


def test_a_replay_of_a_time_in_which_nothing_was_recorded_says_so(command: Command) -> None:
    refused = command("plan", "--replay", "2020-01-01..2020-01-08")
    assert (refused.code, refused.out) == (1, "")
    assert "has no change that was recorded then" in refused.err
