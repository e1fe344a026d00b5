"""The feed loses no fate: not by ids, not by times, not by commits that overlap (trap 13)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.ledger.statements import CREATE_LEDGER
from oldhost_sync.store.outbox.pending_fates import RAISE_SEQUENCE
from oldhost_sync.store.read.change_feed import number_fates
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.api.test_fates import make
from tests.integration.system.test_restore import DUMP, program

_END = text(
    "UPDATE outbox_events SET outcome = :outcome, processed_at = UTC_TIMESTAMP(6) - INTERVAL :ago SECOND, "
    "fate_sequence = (SELECT l.fate_sequence FROM nonce_ledger l WHERE l.host = 'oldhost') WHERE id = :id"
)


def end(connection: Connection, change_id: int, ago: float = 0.0, outcome: str = "APPLIED") -> None:
    """Give a change its fate as the ledger does; the database's clock was `ago` seconds behind then."""
    connection.exec_driver_sql(CREATE_LEDGER, ("oldhost",))
    connection.exec_driver_sql(RAISE_SEQUENCE, ("oldhost",))
    connection.execute(_END, {"id": change_id, "outcome": outcome, "ago": ago})


def poll(client: httpx.Client, since: str | None, **params: Any) -> dict[str, Any]:
    answer = client.get("/api/changes", params=({} if since is None else {"since": since}) | params)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def ids(page: dict[str, Any]) -> list[int]:
    return [change["change_id"] for change in page["changes"]]


def test_fates_come_in_the_order_in_which_they_were_decided_whatever_the_clock_says(
    shop: httpx.Client, engine: Engine
) -> None:
    first, second, third = (make(shop, key) for key in "abc")
    for change_id, ago in ((third, 10), (first, 7200), (second, 40)):
        with engine.begin() as connection:
            end(connection, change_id, ago)
    page = poll(shop, None, limit=2)
    assert (ids(page), page["more"], page["next_poll"]) == ([third, first], True, 0)
    page = poll(shop, page["next_cursor"], limit=2)
    assert (ids(page), page["more"]) == ([second], False)
    assert ids(poll(shop, page["next_cursor"])) == []


def test_a_fate_is_shown_as_soon_as_it_is_decided(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id)
    assert ids(poll(shop, None)) == [change_id]


def test_reading_waits_for_nobody_and_misses_nothing_that_is_not_committed_yet(
    shop: httpx.Client, engine: Engine
) -> None:
    early, late = make(shop, "early"), make(shop, "late")
    with engine.begin() as connection:
        end(connection, early)
    with engine.connect() as connection:
        end(connection, late)
        connection.exec_driver_sql("SELECT id FROM outbox_events FOR UPDATE")
        page = poll(shop, None)
        assert ids(page) == [early]
        connection.commit()
    assert ids(poll(shop, page["next_cursor"])) == [late]


def test_fates_of_one_moment_are_split_over_pages_without_loss(shop: httpx.Client, engine: Engine) -> None:
    changes = [make(shop, f"k{number}") for number in range(5)]
    with engine.begin() as connection:
        connection.exec_driver_sql(CREATE_LEDGER, ("oldhost",))
        connection.exec_driver_sql(
            "UPDATE outbox_events SET outcome = 'SUPERSEDED', processed_at = '2026-01-01', fate_sequence = 7"
        )
    seen: list[int] = []
    cursor: str | None = None
    for _ in range(3):
        page = poll(shop, cursor, limit=2)
        seen += ids(page)
        cursor = page["next_cursor"]
    assert seen == changes


def test_fates_without_a_number_are_numbered_by_the_relay(shop: httpx.Client, engine: Engine) -> None:
    """Refused submissions, and what a process of the release before decides."""
    first, second = make(shop, "a"), make(shop, "b")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6)")
    assert ids(poll(shop, None)) == []
    with engine.begin() as connection:
        assert number_fates(connection, "oldhost", 100) == 2
    with engine.begin() as connection:
        assert number_fates(connection, "oldhost", 100) == 0
    assert ids(poll(shop, None)) == [first, second]


def test_a_reader_whose_fates_were_forgotten_is_told_where_to_go_on(shop: httpx.Client, engine: Engine) -> None:
    gone, kept = make(shop, "gone"), make(shop, "kept")
    for change_id in (gone, kept):
        with engine.begin() as connection:
            end(connection, change_id)
    start = poll(shop, "f0.253402300799000000.0", limit=1)
    assert ids(start) == [gone]
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_events WHERE id = %s", (gone,))
        connection.exec_driver_sql("INSERT INTO feed_horizon (host, pruned_sequence) VALUES ('oldhost', 1)")
    answer = shop.get("/api/changes", params={"since": "f0.253402300799000000.0"})
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (410, "cursor-gone")
    assert ids(poll(shop, answer.json()["oldest_cursor"])) == [kept]
    assert ids(poll(shop, start["next_cursor"])) == [kept]
    assert ids(poll(shop, None)) == [kept]


def test_a_retried_change_comes_again_with_its_next_fate(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k", "checked_in")
    with engine.begin() as connection:
        end(connection, change_id, 60, "DEAD")
    page = poll(shop, None)
    with engine.begin() as connection:
        assert not decide(connection, OperatorAct("oldhost", "retry", "anna", "corrected there", change_id)).refused
    assert ids(poll(shop, page["next_cursor"])) == []
    with engine.begin() as connection:
        end(connection, change_id, 30, "APPLIED")
    again = poll(shop, page["next_cursor"])
    assert [change["outcome"] for change in page["changes"] + again["changes"]] == ["DEAD", "APPLIED"]


def test_nothing_new_is_a_304_that_says_when_to_ask_again(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    first = shop.get("/api/changes", params={"since": "f0.0.0"})
    again = shop.get("/api/changes", params={"since": "f0.0.0"}, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert int(again.headers["retry-after"]) >= 1
    with engine.begin() as connection:
        end(connection, change_id, 60)
    news = shop.get("/api/changes", params={"since": "f0.0.0"}, headers={"If-None-Match": first.headers["etag"]})
    assert (news.status_code, ids(news.json())) == (200, [change_id])


@pytest.mark.parametrize("known", ["{etag}", '"other", {etag}', "{strong}", "*"])
def test_the_tag_may_come_in_any_form_that_http_has(shop: httpx.Client, known: str) -> None:
    etag = shop.get("/api/changes").headers["etag"]
    assert etag.startswith('W/"')
    header = known.format(etag=etag, strong=etag.removeprefix("W/"))
    assert shop.get("/api/changes", headers={"If-None-Match": header}).status_code == 304
    assert shop.get("/api/changes", headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_feed_can_begin_with_what_is_new(shop: httpx.Client, engine: Engine) -> None:
    old, new = make(shop, "old"), make(shop, "new")
    with engine.begin() as connection:
        end(connection, old)
    cursor = poll(shop, "latest")["next_cursor"]
    with engine.begin() as connection:
        end(connection, new)
    assert ids(poll(shop, cursor)) == [new]
    assert ids(poll(shop, None)) == [old, new]


def test_an_idle_feed_is_asked_less_often(shop: httpx.Client, engine: Engine) -> None:
    idle = poll(shop, None)["next_poll"]
    make(shop, "k")
    assert poll(shop, None)["next_poll"] < idle


def test_another_host_s_fates_are_not_shown(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id, 60)
        connection.execute(text("UPDATE outbox_events SET host = 'other'"))
    assert ids(poll(shop, None)) == []


def test_a_dead_letter_that_is_given_up_comes_again_with_that_fate(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id, 60, "DEAD")
    page = poll(shop, None)
    assert [change["outcome"] for change in page["changes"]] == ["DEAD"]
    with engine.begin() as connection:
        assert not decide(connection, OperatorAct("oldhost", "discard", "anna", "the guest left", change_id)).refused
    page = poll(shop, page["next_cursor"])
    assert [(change["change_id"], change["outcome"]) for change in page["changes"]] == [(change_id, "DISCARDED")]


@pytest.fixture
def backup(mariadb_server: PrivateMariaDB, engine: Engine, tmp_path: Path) -> Backup:
    return Backup(mariadb_server, str(engine.url.database), tmp_path / "backup.sql")


@dataclass(frozen=True)
class Backup:
    """The test's database, backed up and restored with MariaDB's own programs."""

    server: PrivateMariaDB
    database: str
    file: Path

    def make(self) -> None:
        with self.file.open("wb") as file:
            program(self.server, DUMP, self.database, stdout=file)

    def restore(self) -> None:
        with self.file.open("rb") as file:
            program(self.server, "mariadb", self.database, stdin=file)


def ended(client: httpx.Client, engine: Engine, key: str) -> int:
    change_id = make(client, key)
    with engine.begin() as connection:
        end(connection, change_id)
    return change_id


def refused(client: httpx.Client, cursor: str) -> dict[str, Any]:
    answer = client.get("/api/changes", params={"since": cursor})
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (410, "cursor-unknown")
    body: dict[str, Any] = answer.json()
    return body


def test_a_cursor_that_is_ahead_of_a_restored_database_is_gone(
    shop: httpx.Client, engine: Engine, backup: Backup
) -> None:
    kept = ended(shop, engine, "kept")
    backup.make()
    ended(shop, engine, "lost")
    cursor = poll(shop, None)["next_cursor"]
    backup.restore()
    way_back = refused(shop, cursor)
    new = ended(shop, engine, "new")
    assert ids(poll(shop, way_back["latest_cursor"])) == [new]
    assert ids(poll(shop, way_back["oldest_cursor"])) == [kept, new]


def test_a_restored_database_that_has_gone_on_beyond_the_cursor_is_noticed_too(
    shop: httpx.Client, engine: Engine, backup: Backup
) -> None:
    backup.make()
    ended(shop, engine, "lost")
    cursor = poll(shop, None)["next_cursor"]
    backup.restore()
    for key in ("another", "third"):  # with the numbers and ids of the lost one, and more
        ended(shop, engine, key)
    refused(shop, cursor)


def test_a_cursor_from_the_end_of_the_feed_is_noticed_too(shop: httpx.Client, engine: Engine, backup: Backup) -> None:
    backup.make()
    ended(shop, engine, "lost")
    cursor = poll(shop, "latest")["next_cursor"]
    backup.restore()
    ended(shop, engine, "another")
    refused(shop, cursor)


def test_a_reader_whose_last_fate_is_in_the_backup_goes_on(shop: httpx.Client, engine: Engine, backup: Backup) -> None:
    ended(shop, engine, "kept")
    cursor = poll(shop, None)["next_cursor"]
    backup.make()
    ended(shop, engine, "lost")
    backup.restore()
    new = ended(shop, engine, "new")
    assert ids(poll(shop, cursor)) == [new]


def test_a_key_that_the_backup_lacks_is_recorded_again(shop: httpx.Client, backup: Backup) -> None:
    """A repetition with the same key is what brings a lost change back."""
    make(shop, "kept")
    backup.make()
    make(shop, "lost")
    backup.restore()
    body = {"entity_type": "unit", "entity_id": "12B", "event_type": "booking_created", "payload": {}}
    for key, replayed in (("lost", False), ("lost", True)):
        answer = shop.post("/api/changes", json=body, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.headers.get("idempotency-replayed") == "true") == (202, replayed)
