"""`oldhost-sync settlement verify`: what it finds, against the files themselves and against the ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.cli.main import run
from oldhost_sync.settlement.settlement_file import SettlementFolder
from oldhost_sync.settlement.verification import verify
from oldhost_sync.store import retention
from tests.integration.settlement.ledger_rows import days_ago, ended, settle_all
from tests.integration.store.writing import HOST, change_sql

pytestmark = pytest.mark.mariadb

Checked = Callable[..., list[str]]


@pytest.fixture
def folder(engine: Engine, tmp_path: Path) -> SettlementFolder:
    """Three days with an operation each, and a file of each."""
    for number in (1, 2, 3):
        ended(engine, number, ago=4 - number)
    settle_all(engine, tmp_path)
    return SettlementFolder(tmp_path, HOST)


def edit(folder: SettlementFolder, ago: int, old: bytes, new: bytes) -> None:
    path = folder.file_of(days_ago(ago))
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))


def forge(folder: SettlementFolder, ago: int, old: bytes, new: bytes) -> None:
    """As somebody would who knows the format: the footer is right again."""
    edit(folder, ago, old, new)
    path = folder.file_of(days_ago(ago))
    *before, last = path.read_bytes().splitlines(keepends=True)
    footer = json.loads(last) | {"sha256": hashlib.sha256(b"".join(before)).hexdigest()}
    path.write_bytes(b"".join(before) + json.dumps(footer, separators=(",", ":")).encode() + b"\n")


def test_files_as_they_were_written_are_right_by_themselves_and_by_the_ledger(
    engine: Engine, folder: SettlementFolder
) -> None:
    found = verify(folder, engine)
    assert (found.problems, len(found.days), found.records, found.compared) == ([], 3, 3, 3)
    assert verify(folder).problems == []


def test_a_byte_that_was_changed_is_found(folder: SettlementFolder) -> None:
    edit(folder, 2, b'"nonce":2', b'"nonce":9')
    assert "does not match the lines before it" in verify(folder).problems[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"nonce":2', b'"nonce":"2"'),
        (b'"nonce":2', b'"nonce":null'),
        (b'"nonce":2', b'"nonce":[]'),
        (b'.000000Z"', b'.000000+00:00Z"'),
        (b'"outcome":"applied"', b'"outcome":{}'),
    ],
)
def test_a_record_of_the_wrong_types_is_damage_and_not_a_fault_of_ours(
    engine: Engine, folder: SettlementFolder, old: bytes, new: bytes
) -> None:
    forge(folder, 2, old, new)
    assert "line 2 is not a record" in verify(folder, engine).problems[0]


def test_a_header_that_names_no_sha256_is_damage(folder: SettlementFolder) -> None:
    for wrong in (b"5", b'"\\ud800"', b'"\\u001b[2J"'):
        reader = folder.reader(days_ago(2))
        right = reader.path.read_bytes()
        reader.read()
        assert reader.previous is not None
        forge(folder, 2, f'"{reader.previous.sha256_hex}"'.encode(), wrong)
        assert "line 1 does not name the file before it" in verify(folder).problems[0]
        reader.path.write_bytes(right)


def test_json_too_deep_to_be_read_is_damage(folder: SettlementFolder) -> None:
    edit(folder, 2, b'{"at"', b"[" * 3_000)
    assert "line 2 is not JSON" in verify(folder).problems[0]


def test_what_lies_in_a_files_place_and_is_none_is_told_beside_all_others(folder: SettlementFolder) -> None:
    for ago in (2, 3):
        folder.file_of(days_ago(ago)).unlink()
    folder.file_of(days_ago(2)).mkdir()
    folder.file_of(days_ago(3)).symlink_to("nowhere")
    found = verify(folder)
    assert ["can't be read" in problem for problem in found.problems] == [True, True, False]
    assert [each.day for each in found.days] == [days_ago(1)]


def test_a_file_that_was_forged_whole_breaks_the_chain(folder: SettlementFolder) -> None:
    forge(folder, 2, b'"nonce":2', b'"nonce":9')
    (problem,) = verify(folder).problems
    assert problem.startswith(f"{HOST}.{days_ago(1)}.settlement.jsonl does not continue the file of {days_ago(2)}")


def test_a_forged_last_file_breaks_no_chain_but_the_database_knows_the_true_one(
    engine: Engine, folder: SettlementFolder
) -> None:
    forge(folder, 1, b'"nonce":3', b'"nonce":9')
    assert verify(folder).problems == []
    assert any("is not the file that was written" in each for each in verify(folder, engine).problems)


def test_a_file_that_is_cut_off_is_found(folder: SettlementFolder) -> None:
    path = folder.file_of(days_ago(1))
    path.write_bytes(path.read_bytes()[:-40])
    assert ["is cut off" in each for each in verify(folder).problems] == [True]


def test_a_gap_is_found(engine: Engine, folder: SettlementFolder) -> None:
    folder.file_of(days_ago(2)).unlink()
    assert ["does not continue" in each for each in verify(folder).problems] == [True]
    assert f"the file of {days_ago(2)} was written, but is missing" in verify(folder, engine).problems


def test_files_that_begin_later_are_right_only_if_one_says_since_when(folder: SettlementFolder) -> None:
    folder.file_of(days_ago(3)).unlink()
    assert ["--since" in each for each in verify(folder).problems] == [True]
    assert verify(folder, since=days_ago(2)).problems == []


def test_a_body_or_an_outcome_that_was_changed_in_the_ledger_is_found(engine: Engine, folder: SettlementFolder) -> None:
    change_sql(engine, "UPDATE nonce_requests SET body = 'other' WHERE nonce = 2")
    (lacks, lost) = verify(folder, engine).problems
    assert "lacks 1 records that the ledger has, the first with nonce 2" in lacks
    assert "has 1 records that the ledger has lost, nonces 2 to 2" in lost


def test_after_a_restore_it_names_the_nonces_that_the_database_lost(engine: Engine, folder: SettlementFolder) -> None:
    change_sql(engine, "DELETE FROM nonce_requests WHERE nonce >= 2")
    change_sql(engine, "DELETE FROM settled_days ORDER BY day DESC LIMIT 2")
    found = verify(folder, engine)
    assert [each.partition(" has ")[2].partition(":")[0] for each in found.problems] == [
        "1 records that the ledger has lost, nonces 2 to 2",
        "1 records that the ledger has lost, nonces 3 to 3",
    ]
    assert len(found.notes) == 2


def test_what_was_pruned_after_its_release_is_no_problem(engine: Engine, folder: SettlementFolder) -> None:
    change_sql(engine, "UPDATE settled_days SET released_at = UTC_TIMESTAMP(6) ORDER BY day LIMIT 1")
    change_sql(engine, "DELETE FROM nonce_requests WHERE nonce = 1")
    found = verify(folder, engine)
    assert (found.problems, found.records, found.compared) == ([], 3, 2)


def test_a_row_has_the_same_record_when_it_has_moved_to_the_archive(engine: Engine, folder: SettlementFolder) -> None:
    change_sql(engine, f"UPDATE nonce_ledger SET next_nonce = NULL, last_applied_nonce = {retention.NONCES_KEPT + 3}")
    with engine.begin() as connection:
        now = retention.database_clock(connection)
        retention.prune(connection, HOST, retention.Horizon(now, now, now), rows=100)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM nonce_requests_archive").scalar() == 2
    assert (verify(folder, engine).problems, verify(folder, engine).compared) == ([], 3)


@pytest.fixture
def command(
    engine: Engine, folder: SettlementFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("SYNC_DATABASE_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("SYNC_SETTLEMENT_DIR", str(folder.path))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str]:
        code = run(["settlement", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def test_the_command_says_what_was_compared_and_ends_with_1_when_something_is_wrong(
    command: Callable[..., tuple[int, str]], folder: SettlementFolder
) -> None:
    code, said = command("verify")
    assert code == 0
    assert "3 files" in said
    assert "3 of them compared with the ledger: all is as it was written." in said
    edit(folder, 1, b'"nonce":3', b'"nonce":4')
    assert command("verify")[0] == 1
    code, said = command("verify", "--files-only", "--json")
    assert (code, json.loads(said)["ok"]) == (1, False)


def test_no_files_at_all_are_wrong_by_themselves_and_nothing_to_verify_where_no_day_was_settled(
    command: Callable[..., tuple[int, str]], engine: Engine, folder: SettlementFolder
) -> None:
    for ago in (1, 2, 3):
        folder.file_of(days_ago(ago)).unlink()
    code, said = command("verify", "--files-only")
    assert code == 1
    assert f"there is no file of {HOST}" in said
    assert command("verify")[0] == 1
    change_sql(engine, "DELETE FROM settled_days")
    assert command("verify") == (0, "Nothing to verify: no day is settled yet.\n")


def test_where_nothing_is_found_the_first_day_that_was_looked_at_is_named(
    command: Callable[..., tuple[int, str]], folder: SettlementFolder
) -> None:
    tomorrow = str(days_ago(-1))
    found = command("verify", "--since", tomorrow)
    assert found == (0, f"Nothing to verify: no day since {tomorrow} is settled yet.\n")
    assert verify(folder, None, days_ago(-1)).problems == [
        f"there is no file of {HOST} in {folder.path} since {tomorrow}"
    ]


def test_the_commands_list_days_and_write_what_is_due(
    command: Callable[..., tuple[int, str]], engine: Engine, folder: SettlementFolder
) -> None:
    assert "Nothing to settle" in command("write")[1]
    change_sql(engine, "DELETE FROM settled_days ORDER BY day DESC LIMIT 1")
    folder.file_of(days_ago(1)).unlink()
    assert command("write") == (0, f"{days_ago(1)}: 1 records\n")
    days = json.loads(command("list", "--json")[1])
    assert [(each["day"], each["file"]) for each in days] == [(str(days_ago(n)), True) for n in (1, 2, 3)]
    folder.file_of(days_ago(2)).unlink()
    assert "its file is missing" in command("list")[1]


def test_without_a_folder_the_command_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SYNC_SETTLEMENT_DIR", raising=False)
    assert run(["settlement", "list"]) == 2
    assert "SYNC_SETTLEMENT_DIR" in capsys.readouterr().err
