"""Settling a day: what its file has, when it is written, and what stops it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.settlement.day_settlement import release_next, settle_next
from oldhost_sync.settlement.settlement_file import FileDamaged, FolderUnusable, LedgerDiffers, SettlementFolder
from oldhost_sync.store.ledger.fates import UNCONFIRMED
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.settlement.ledger_rows import TODAY_SQL, ahead, body_of, days_ago, ended, settle, settle_all
from tests.integration.store.writing import HOST, change_sql, rows

pytestmark = pytest.mark.mariadb


def file_of(path: Path, ago: int) -> Path:
    return SettlementFolder(path, HOST).file_of(days_ago(ago))


def lines(path: Path, ago: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_of(path, ago).read_text().splitlines()]


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def release(engine: Engine, path: Path, ledger_days: int) -> object:
    folder = SettlementFolder(path, HOST)
    return run_in_transaction(engine, lambda connection: release_next(connection, folder, ledger_days))


def test_a_file_has_nonce_outcome_and_the_hash_of_the_exact_body_and_no_content(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=1)
    ended(engine, 2, ago=1, answer=UNCONFIRMED)
    ended(engine, 3, ago=1, status="FAILED", answer="rejected: Ms Nowak is unknown")
    ended(engine, 4, ago=1, status="UNSURE", answer="unsure: status 500: Ms Nowak")
    settle_all(engine, tmp_path)
    header, *records, footer = lines(tmp_path, 1)
    assert (header["host"], header["day"], header["previous"]) == (HOST, days_ago(1).isoformat(), None)
    assert [(each["nonce"], each["change"], each["outcome"]) for each in records] == [
        (1, 1001, "applied"),
        (2, 1002, "unconfirmed"),
        (3, 1003, "rejected"),
        (4, 1004, "unsure"),
    ]
    assert [each["body_sha256"] for each in records] == [hashlib.sha256(body_of(n)).hexdigest() for n in (1, 2, 3, 4)]
    assert footer["outcomes"] == {"applied": 1, "rejected": 1, "unconfirmed": 1, "unsure": 1}
    text = file_of(tmp_path, 1).read_text()
    assert "Nowak" not in text
    assert "key of" not in text


def test_each_file_names_the_sha256_of_the_one_before_also_where_nothing_ended(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=3)
    ended(engine, 2, ago=1)
    assert settle_all(engine, tmp_path) == [days_ago(3), days_ago(2), days_ago(1)]
    for ago in (2, 1):
        whole = file_of(tmp_path, ago + 1).read_bytes()
        expected = {"day": days_ago(ago + 1).isoformat(), "sha256": hashlib.sha256(whole).hexdigest()}
        assert lines(tmp_path, ago)[0]["previous"] == expected
    assert lines(tmp_path, 2)[1]["records"] == 0


def test_the_footer_is_the_hash_of_all_lines_before_it(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, 2, ago=1)
    settle_all(engine, tmp_path)
    *before, last = file_of(tmp_path, 1).read_bytes().splitlines(keepends=True)
    assert json.loads(last)["sha256"] == hashlib.sha256(b"".join(before)).hexdigest()


def test_a_day_that_is_not_over_is_not_settled(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=0)
    assert settle(engine, tmp_path).settled is None
    assert files(tmp_path) == []


def test_a_day_waits_for_operations_in_doubt_and_says_so_after_two_days(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=3)
    ended(engine, 2, ago=3, status="SENT")
    change_sql(engine, "UPDATE nonce_requests SET completed_at = NULL WHERE nonce = 2")
    step = settle(engine, tmp_path)
    assert (step.settled, step.late) == (None, True)
    assert "1 operations" in step.waits
    change_sql(engine, "UPDATE nonce_requests SET status = 'APPLIED', completed_at = UTC_TIMESTAMP(6) WHERE nonce = 2")
    assert len(settle_all(engine, tmp_path)) == 3


def test_what_was_given_back_without_an_answer_is_recorded_too(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=1, status="SENT")
    change_sql(
        engine,
        "INSERT INTO nonce_requests_archive (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
        "created_at, archived_at, reason) SELECT host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
        "created_at, completed_at, 'another operation was sent before it' FROM nonce_requests",
    )
    change_sql(engine, "DELETE FROM nonce_requests")
    settle_all(engine, tmp_path)
    assert [each["outcome"] for each in lines(tmp_path, 1)[1:-1]] == ["unanswered"]


def test_a_relay_killed_before_its_commit_left_the_file_that_the_next_one_takes(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=1)
    folder = SettlementFolder(tmp_path, HOST)
    with engine.connect() as connection:
        settle_next(connection, folder)
        connection.rollback()
    written = file_of(tmp_path, 1).read_bytes()
    assert rows(engine, "SELECT day FROM settled_days") == []
    assert settle_all(engine, tmp_path) == [days_ago(1)]
    assert file_of(tmp_path, 1).read_bytes() == written


def test_two_relays_at_once_make_one_file_and_agree_on_it(engine: Engine, tmp_path: Path) -> None:
    ended(engine, *range(1, 3000), ago=1)
    begin = threading.Barrier(2)

    def one_relay() -> None:
        begin.wait()
        settle_all(engine, tmp_path)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(one_relay) for _ in range(2)]:
            done.result()
    assert files(tmp_path) == [file_of(tmp_path, 1).name]
    (noted,) = rows(engine, "SELECT sha256, records FROM settled_days")
    assert noted == {"sha256": hashlib.sha256(file_of(tmp_path, 1).read_bytes()).digest(), "records": 2999}


def test_a_folder_that_is_not_there_is_not_made(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=1)
    with pytest.raises(FolderUnusable, match="mount it"):
        settle(engine, tmp_path / "away")
    assert files(tmp_path) == []


def test_a_full_disk_leaves_no_file_and_settles_nothing(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ended(engine, 1, ago=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            settle(engine, tmp_path)
    assert (files(tmp_path), rows(engine, "SELECT day FROM settled_days")) == ([], [])
    assert settle_all(engine, tmp_path) == [days_ago(1)]


def test_a_relay_with_a_folder_of_its_own_is_refused(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=2)
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    assert settle(engine, tmp_path / "one").settled is not None
    with pytest.raises(FolderUnusable, match="share one"):
        settle(engine, tmp_path / "other")


def test_a_chain_does_not_go_on_from_a_file_that_was_changed(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=2)
    settle(engine, tmp_path)
    file_of(tmp_path, 2).write_bytes(file_of(tmp_path, 2).read_bytes().replace(b'"nonce":1,', b'"nonce":7,'))
    with pytest.raises(FileDamaged, match="put it back"):
        settle(engine, tmp_path)


def test_a_database_restored_to_an_earlier_day_takes_the_files_over(engine: Engine, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        ended(engine, number, ago=4 - number)
    settle_all(engine, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    change_sql(engine, "DELETE FROM nonce_requests WHERE nonce >= 2")
    change_sql(engine, "DELETE FROM settled_days ORDER BY day DESC LIMIT 2")
    assert settle_all(engine, tmp_path) == [days_ago(2), days_ago(1)]
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_only_old_days_whose_files_have_all_that_the_ledger_has_are_released(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=12)
    ended(engine, 2, ago=11)
    settle_all(engine, tmp_path)
    ended(engine, 3, ago=11, counts=False)  # as by a clock that was set back
    assert release(engine, tmp_path, 10 + ahead()) == days_ago(12)
    with pytest.raises(LedgerDiffers, match="lacks nonce 3"):
        release(engine, tmp_path, 10 + ahead())
    change_sql(engine, "DELETE FROM nonce_requests WHERE nonce = 3")
    assert release(engine, tmp_path, 10 + ahead()) == days_ago(11)
    assert release(engine, tmp_path, 10 + ahead()) is None


def test_a_day_whose_file_was_exchanged_is_not_released(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=12)
    settle_all(engine, tmp_path)
    change_sql(engine, "UPDATE settled_days SET sha256 = REPEAT('x', 32)")
    with pytest.raises(FileDamaged, match="not the file that was written"):
        release(engine, tmp_path, 10)


def test_many_operations_are_settled_and_released_in_the_memory_of_a_page_of_them(
    engine: Engine, tmp_path: Path
) -> None:
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, answer, created_at, "
        f"completed_at) SELECT '{HOST}', seq, seq, seq, 1, REPEAT('x', 500), 'APPLIED', 'applied', "
        f"{TODAY_SQL} - INTERVAL 12 DAY, {TODAY_SQL} - INTERVAL 12 DAY + INTERVAL seq SECOND FROM seq_1_to_10000",
    )
    tracemalloc.start()
    settled = settle(engine, tmp_path).settled
    assert release(engine, tmp_path, 10) == days_ago(12)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert settled is not None
    assert settled.records == 10_000
    assert peak < 3 * 1024 * 1024, peak
