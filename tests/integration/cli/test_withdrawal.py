"""`change withdraw` against the running product: looked at, confirmed, undone; and the writer hears of it."""

from __future__ import annotations

import pytest
import typer

from oldhost_sync.cli import withdrawal
from oldhost_sync.temporal.writer_client import WriterError
from tests.integration.cli.conftest import Command
from tests.integration.cli.test_commands import fate, submitted, until

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.timeout(300)]


def dirty(command: Command, unit: str, key: str, status: str) -> None:
    assert submitted(command, unit, "unit_status_changed", {"status": status}, key).code == 0
    until(lambda: fate(command, key)["state"] == "WAITING", f"{key} is in the writer")


def in_writer(command: Command, unit: str) -> list[int]:
    writer = command("find", unit, "--json").json["writer"]  # null until the writer answers in time
    return [each["change_id"] for each in writer["changes"]] if writer else []


def test_what_waits_is_withdrawn_after_a_look_and_the_older_state_waits_again(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty(command, "W-1", "old-1", "Dirty")
    dirty(command, "W-1", "new-1", "Clean")
    older, newer = fate(command, "old-1")["change_id"], fate(command, "new-1")["change_id"]
    until(lambda: in_writer(command, "W-1") == [newer], "the writer has the newer state")
    asked: list[str] = []
    typed = iter(["yes", "oldhost"])

    def prompt(text: str, **_: object) -> str:
        asked.append(text)
        return next(typed)

    monkeypatch.setattr(typer, "prompt", prompt)
    wanted = ("change", "withdraw", "--key", "new-1", "--reason", "wrong status")
    refused = command(*wanted)
    assert (refused.code, "nothing was withdrawn" in refused.err) == (2, True)
    assert fate(command, "new-1")["state"] == "WAITING"
    done = command(*wanted)
    assert asked == ["Type oldhost to withdraw them"] * 2
    assert "1 change of 1 entity" in done.out
    assert "1 state to an older change that waits" in done.out
    assert "1 change withdrawn" in done.out
    assert fate(command, "new-1")["state"] == "WITHDRAWN"
    until(lambda: in_writer(command, "W-1") == [older], "the writer has the older state")


def test_a_withdrawal_is_undone_within_a_minute(command: Command) -> None:
    dirty(command, "W-2", "once-2", "Clean")
    done = command("change", "withdraw", "--entity", "W-2", "--reason", "r", "--yes", "--json").json
    assert (done["preview"]["changes"], done["withdrawal"]["withdrawn"]) == (1, 1)
    number = str(done["withdrawal"]["act_id"])
    undone = command("change", "withdraw", "--undo", number, "--reason", "it was right", "--json").json
    assert undone == {"recorded": 1, "left_out": 0}
    again = fate(command, "once-2")["superseded_by"]
    assert fate(command, str(again))["entity_id"] == "W-2"
    assert command("audit", "--action", "undo-withdraw", "--json").json[0]["reason"] == "it was right"


def test_a_filter_is_needed_and_nothing_found_is_said(command: Command) -> None:
    assert command("change", "withdraw", "--reason", "r").code == 2
    assert command("change", "withdraw", "--all", "--key", "k", "--reason", "r").code == 2
    found = command("change", "withdraw", "--key", "never-was", "--reason", "r")
    assert (found.code, "0 changes" in found.out) == (0, True)
    assert command("change", "withdraw", "--undo", "999999", "--reason", "r").code == 1


def test_a_writer_that_can_not_be_told_is_said(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    dirty(command, "W-3", "once-3", "Clean")

    async def away(*_: object) -> None:
        raise WriterError("oldhost", "away")

    monkeypatch.setattr(withdrawal, "_tell_writer", away)
    said = command("change", "withdraw", "--key", "once-3", "--reason", "r", "--yes")
    assert said.code == 0
    assert "the writer could not be told" in said.err
