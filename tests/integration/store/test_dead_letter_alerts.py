"""Dead letters are one alert for each of OldHost's reasons, whoever tells of them and in whatever order."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store import alerts
from oldhost_sync.store.alerts import REASONS_MAX, dead_letter_groups, keep_dead_letter_alerts
from oldhost_sync.store.read.dead_letters import list_groups
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb


def rejected(engine: Engine, *reasons: str) -> list[int]:
    """One dead letter for each of `reasons`; their ids."""
    ids: list[int] = []
    for reason in reasons:
        change_id = recorded(engine, entity_id=f"u{len(ids)}-{reason[:20]}").change_id
        assert change_id is not None
        ids.append(change_id)
        values = f"outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6), error = '{reason}'"
        change_sql(engine, f"UPDATE outbox_events SET {values} WHERE id = {change_id}")
    return ids


def kept(engine: Engine) -> list[alerts.RaisedAlert]:
    with engine.begin() as connection:
        keep_dead_letter_alerts(connection, HOST)
        return alerts.list_alerts(connection, HOST)[::-1]


def test_dead_letters_of_one_reason_are_one_alert_with_a_count(engine: Engine) -> None:
    first, _, third, _ = rejected(engine, "no door 1", "no door 22", "no guest", "no door 333")
    doors, guest = kept(engine)
    assert (doors.count, doors.change_id, doors.severity) == (3, first, "warning")
    assert (guest.count, guest.change_id) == (1, third)
    assert "3 changes" in doors.message
    assert doors.cause == "dead-letters:no door #"


def test_an_alert_quotes_what_oldhosts_texts_have_in_common_and_no_details(engine: Engine) -> None:
    rejected(engine, "no door 1", "no door 22", "no guest", "no room 7")
    doors, guest, room = kept(engine)
    assert doors.message.startswith('OldHost rejected 2 changes: "no door #". Later')
    assert guest.message.startswith('OldHost rejected 1 change: "no guest". Later')
    assert room.message.startswith('OldHost rejected 1 change: "no room #". Later')


def test_a_text_of_any_length_leaves_room_for_what_follows_from_it(engine: Engine) -> None:
    rejected(engine, "no " + "x" * 1000)
    assert kept(engine)[0].message.endswith("are held until each is decided on.")


def test_alerts_have_the_groups_that_people_decide_on(engine: Engine) -> None:
    rejected(engine, "no door 1", "no door 22", "guest \\'Ada\\' left", "guest \\'Bob\\' left", "")
    kept(engine)
    with engine.connect() as connection:
        groups = list_groups(connection, HOST).groups
    told = sorted((alert.cause.removeprefix("dead-letters:"), alert.count) for alert in kept(engine))
    assert told == sorted((group.reason, group.letters) for group in groups)
    assert told == [("(no reason)", 1), ("guest # left", 2), ("no door #", 2)]


def test_an_alert_follows_what_is_undecided_and_closes_with_the_last(engine: Engine) -> None:
    ids = rejected(engine, "no door", "no door")
    kept(engine)
    change_sql(engine, f"UPDATE outbox_events SET outcome = 'DISCARDED' WHERE id = {ids[0]}")
    (alert,) = kept(engine)
    assert alert.change_id == ids[1]
    change_sql(engine, f"UPDATE outbox_events SET outcome = NULL, processed_at = NULL WHERE id = {ids[1]}")
    assert kept(engine) == []
    assert [row["close_reason"] for row in rows(engine, "SELECT close_reason FROM alerts")] == [
        "each of them was decided on"
    ]


def test_when_the_last_is_decided_the_alert_still_tells_of_all(engine: Engine) -> None:
    ids = rejected(engine, *["no door"] * 7)
    kept(engine)
    for change_id in ids:
        change_sql(engine, f"UPDATE outbox_events SET outcome = 'DISCARDED' WHERE id = {change_id}")
        kept(engine)
    (closed,) = rows(engine, "SELECT message, occurrences, is_open FROM alerts")
    assert (closed["occurrences"], closed["is_open"]) == (7, None)
    assert closed["message"].startswith('OldHost rejected 7 changes: "no door".')


def test_one_whose_fate_waits_for_its_row_is_counted_too(engine: Engine) -> None:
    change_id = recorded(engine).change_id
    change_sql(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, error) "
        f"VALUES ('{HOST}', {change_id}, 'unit', 'u', 'DEAD', 'no door')",
    )
    (alert,) = kept(engine)
    assert (alert.count, alert.change_id) == (1, change_id)


def test_so_many_reasons_that_nobody_reads_them_share_an_alert(engine: Engine) -> None:
    words = [f"reason {chr(97 + number)}" for number in range(REASONS_MAX + 3)]
    rejected(engine, *words)
    found = kept(engine)
    assert len(found) == REASONS_MAX + 1
    assert (found[-1].cause, found[-1].count) == ("dead-letters:other reasons", 3)


@pytest.mark.parametrize("limit", ["_TEXTS_MAX", "_LETTERS_MAX"])
def test_letters_whose_texts_are_not_read_are_counted_with_the_other_reasons(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    rejected(engine, *(f"reason {letter}" for letter in "abcde"))
    monkeypatch.setattr(alerts, limit, 2)
    assert [(alert.cause, alert.count) for alert in kept(engine)] == [
        ("dead-letters:reason a", 1), ("dead-letters:reason b", 1), ("dead-letters:other reasons", 3),
    ]  # fmt: skip


def test_one_reason_with_ever_different_numbers_and_hashes_is_one_text(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = ("9f86d081884c7d659a2feaa0c55ad015", "DCAFFE01DCAFFE01DCAFFE01DCAFFE01", "1" * 32)
    rejected(engine, *(f"no guest {number} of {hashed}" for number, hashed in enumerate(hashes)))
    monkeypatch.setattr(alerts, "_TEXTS_MAX", 1)
    assert [(alert.cause, alert.count) for alert in kept(engine)] == [("dead-letters:no guest # of #", 3)]


def test_long_texts_that_all_differ_are_grouped_without_a_table_on_disk(engine: Engine) -> None:
    change_sql(
        engine,
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        f"priority_class, processed_at, outcome, error) SELECT '{HOST}', CONCAT('k', seq), '', 'unit', seq, 'e', "
        "'{}', 'TXN', UTC_TIMESTAMP(6), 'DEAD', RPAD(CONV(seq + 100000, 10, 36), 1024, 'x') FROM seq_1_to_20000",
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        groups = dead_letter_groups(connection, HOST)
        ((_, on_disk),) = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'").all()
    assert int(on_disk) == 0
    assert sum(group.count for group in groups) == 20_000
