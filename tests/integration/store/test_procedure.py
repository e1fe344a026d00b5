"""The stored procedure: its own facts. What it shares with `record_change` is tested by the fixture `door`."""

from __future__ import annotations

import json
import math
import random
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import DBAPIError

from oldhost_sync import InvalidChange, RecordedChange, record_change
from oldhost_sync.fields.json_text import canonical_json, read_json
from oldhost_sync.fields.scalar import InvalidField
from oldhost_sync.policy import limits
from oldhost_sync.store.access import APP_RIGHTS
from oldhost_sync.store.schema_migration import migrate
from oldhost_sync.store.tables import metadata
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.change_forms import FIELDS, NO_JSON, REFUSED, TAKEN, TRACEPARENT, WHOLE, differing
from tests.integration.store.callers import application
from tests.integration.store.procedure_door import call, record_by_procedure
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb

PROCEDURES = ("record_change", "record_change_json", "record_change_moment")
DOCUMENTS = 300
# What a number, a text or a name may be made of.
NUMBERS = (
    *("-0", "-0.0", "0e5", "1e22", "1E-7", "123e-3", "1e400", "-1e309", "1.7976931348623157e308", "4.9e-324", "1e16"),
    *("9999999999999998.0", "0.0001", "1e-5", "9223372036854775807", "-9223372036854775809", "12345678901234567890.0"),
)
CHARACTERS = 'ab"\\/\n\t\x00\x7fé\u2028🏠\uffff\U0010ffff {}[],:«»%\x1fzA'


class Writer:
    """JSON texts of every kind, as odd as they may be, from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def value(self, levels: int) -> str:
        kind = self._chance.random() if levels else 0.0
        parts = [self.value(levels - 1) for _ in range(self._chance.choice((0, 1, 2, 3, 6)))] if kind > 0.4 else []
        if kind > 0.7:
            return f"{{{self._blank()}{','.join(f'{self._text()}{self._blank()}:{part}' for part in parts)}}}"
        if kind > 0.4:
            return f"[{','.join(parts)}{self._blank()}]"
        return self._blank() + self._chance.choice((self._number, self._text, lambda: "null"))() + self._blank()

    def _blank(self) -> str:
        return self._chance.choice(("", "", " ", "\n\t\r"))

    def _number(self) -> str:
        some = struct.unpack("d", self._chance.randbytes(8))[0]
        exponent = f"{self._chance.randint(-999, 999)}e{self._chance.randint(-330, 300)}"
        return self._chance.choice((*NUMBERS, repr(some) if math.isfinite(some) else "1.5", exponent))

    def _text(self) -> str:
        characters = self._chance.choices(CHARACTERS, k=self._chance.choice((0, 1, 2, 5)))
        return f'"{"".join(map(self._written, characters))}"'

    def _written(self, character: str) -> str:
        must = character in '"\\' or ord(character) < ord(" ")
        if must or self._chance.random() < 0.2:
            return json.dumps(character)[1:-1] if self._chance.random() < 0.5 else _escaped(character)
        return character


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4].upper()}" for at in range(0, len(units), 4))


def test_the_text_of_a_value_is_the_one_that_python_writes(engine: Engine) -> None:
    writer, taken, refused = Writer(5), 0, 0
    with engine.connect() as connection:
        for number in range(DOCUMENTS):
            text = f'{{"payload": {writer.value(number % 6)}}}'
            expected = ""
            try:
                expected = canonical_json("payload", read_json(text))
                taken += 1
            except InvalidField:
                refused += 1
            try:
                connection.exec_driver_sql("CALL record_change_json(%s, @text, @fault)", (text,))
                written, fault = connection.exec_driver_sql("SELECT @text, @fault").one()
            except DBAPIError:
                written, fault = "", "refused"
            assert ("" if fault else written) == expected, text
    assert taken > DOCUMENTS / 2
    assert refused > DOCUMENTS / 20


# It says less of some, since MariaDB does.
IN_OTHER_WORDS = {
    "number of 5000 digits": WHOLE,
    **{f"number {word}": "it is not JSON: " for word in ("NaN", "Infinity", "-Infinity")},
    "unknown field of control characters": rf"the change has unknown fields: \x1b[2J\x00; known are {FIELDS}",
}


def test_each_form_of_a_change_is_treated_as_at_the_other_doors(engine: Engine) -> None:
    """But those that are no text, which a connection refuses."""
    forms = [form for form in [*TAKEN, *REFUSED, *NO_JSON] if "UTF" not in form.name]
    forms = [replace(form, says=IN_OTHER_WORDS.get(form.name, form.says)) for form in forms]
    said: dict[str, str | None] = {}
    with engine.begin() as connection:
        for form in forms:
            try:
                call(connection, HOST, form.text.decode())
                said[form.name] = None
            except InvalidChange as error:
                said[form.name] = str(error)
    assert len(forms) > 150
    assert not differing(forms, said)


def test_names_are_sorted_by_their_characters_however_long_they_are(engine: Engine) -> None:
    names = ["p" * 3000 + end for end in "cab"] + ["z", "é", "🏠", "\uffff", "\u0000", "Z", "z\u0000", '"']
    payload = dict.fromkeys(names, 1)
    recorded(engine, payload=payload, entity_id="python", idempotency_key="python")
    with engine.begin() as connection:
        change = {"entity_type": "unit", "entity_id": "sql", "event_type": "unit_status_changed", "payload": payload}
        call(connection, HOST, json.dumps(change, ensure_ascii=False))
    assert len({row["payload"] for row in rows(engine, "SELECT payload FROM outbox_events")}) == 1


CHANGES: list[dict[str, Any]] = [
    {"event_type": "unit_status_changed", "payload": {"status": "Zoë 🏠", "n": [1, 2.5e-7, {"b": None, "a": True}]}},
    {"event_type": "unit_details_changed", "payload": {"name": "Sea view", "property_id": "P-1"}},
    {"event_type": "unit_details_changed", "payload": {"name": None}, "traceparent": TRACEPARENT},
    {"event_type": "unit_status_changed", "payload": {"status": 7}},
    {"event_type": "guest_locked_out", "payload": {}, "occurred_at": "2026-05-01T12:00:00.123456789+02:00"},
    {"event_type": "checked_in", "payload": {"x": "'\\"}, "not_before": "2026-05-01T12:00:00Z"},
    {
        "event_type": "checked_in",
        "payload": {},
        "not_before": datetime.now(UTC) + timedelta(days=30),
        "traceparent": TRACEPARENT,
    },
    {"entity_type": "booking", "event_type": "rate_changed", "payload": {"a.b$[0]": 1e22}},
]


def test_each_row_is_the_one_that_python_writes(engine: Engine) -> None:
    stored: list[dict[str, list[dict[str, Any]]]] = []
    for door in (record_change, record_by_procedure):
        for number, change in enumerate(CHANGES):
            given = {"entity_type": "unit", "entity_id": "Zimmer ü", "source": "shop"} | change
            with engine.begin() as connection:
                door(connection, host=HOST, idempotency_key=f"k{number}", **given)
        now = ("id", "created_at", "updated_at", "newest_change_id", "row_id")
        tables = ("outbox_events", "scheduled_changes", "submitted_keys", "units", "entities")
        found = {table: rows(engine, f"SELECT * FROM {table}") for table in tables}
        stored.append(
            {
                table: [{name: value for name, value in row.items() if name not in now} for row in of_table]
                for table, of_table in found.items()
            }
        )
        assert all(row["newest_change_id"] for row in found["units"])
        for table in tables:
            change_sql(engine, f"DELETE FROM {table}")
    assert stored[0] == stored[1]
    assert [len(of_table) for of_table in stored[0].values()] == [7, 1, 8, 1, 1]


def test_a_key_that_was_used_at_one_door_gets_its_first_answer_at_the_other(engine: Engine) -> None:
    def at(door: Any, number: int) -> RecordedChange:
        with engine.begin() as connection:
            given = {"entity_type": "unit", "entity_id": "u"} | CHANGES[number]
            answer = door(connection, host=HOST, idempotency_key=f"k{number}", **given)
        assert isinstance(answer, RecordedChange)
        return answer

    doors = (record_change, record_by_procedure)
    for number in range(len(CHANGES)):
        first = at(doors[number % 2], number)
        again = at(doors[1 - number % 2], number)
        assert not first.duplicate
        assert again.duplicate
        assert (first.change_id, first.scheduled_id, first.ref) == (again.change_id, again.scheduled_id, again.ref)


def test_a_state_may_be_no_larger_than_at_the_other_doors(engine: Engine) -> None:
    payload = {"x": "y" * (limits.PAYLOAD_BYTES_MAX - 20)}
    most = limits.STATE_BYTES_MAX // limits.PAYLOAD_BYTES_MAX

    def one(number: int) -> None:
        with engine.begin() as connection:
            event: dict[str, Any] = {"entity_type": "unit", "entity_id": "u", "event_type": f"e{number}"}
            record_by_procedure(connection, host=HOST, **event, payload=payload)

    for number in range(most):
        one(number)
    with pytest.raises(InvalidChange, match="event_type is one too many for this entity"):
        one(most)
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": most}]
    assert rows(engine, "SELECT COUNT(*) AS n FROM submitted_keys") == [{"n": most}]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("[" * 100_000 + "]" * 100_000, "payload nests deeper than 16 levels"),
        ('{"x": ' + " " * 8 * limits.PAYLOAD_BYTES_MAX + "1}", "the change has more than 245760 characters"),
        (None, "it is not JSON"),
    ],
    ids=["deep", "long", "nothing"],
)
def test_a_text_that_would_take_long_is_refused_at_once(engine: Engine, change: str, why: str) -> None:
    with engine.begin() as connection, pytest.raises(InvalidChange, match=why):
        call(connection, HOST, change)


def test_no_variable_has_the_name_of_a_column(engine: Engine) -> None:
    """In a statement of a procedure it would be read in the column's place."""
    (row,) = rows(engine, "SHOW CREATE PROCEDURE record_change")
    declared = re.findall(r"DECLARE ([a-z_, ]+) [A-Z]", row["Create Procedure"])
    named = {name for names in declared for name in names.split(", ")}
    used = ("units", "entities", "outbox_events", "scheduled_changes", "submitted_keys", "event_rules")
    assert "the_row_id" in named
    assert named.isdisjoint(column.name for table in used for column in metadata.tables[table].columns)


# -------------------------------------------------------------------------------------------------------------- rights


@pytest.fixture
def shop(mariadb_server: PrivateMariaDB, engine: Engine) -> Iterator[URL]:
    """An account with a schema of its own, which may only call the procedure."""
    database, theirs = engine.url.database, "a_shop"
    with mariadb_server._root() as cursor:
        cursor.execute(f"CREATE DATABASE {theirs}")
        cursor.execute(f"CREATE TABLE {theirs}.units (mine INT PRIMARY KEY)")
        cursor.execute("CREATE OR REPLACE USER 'caller'@'%' IDENTIFIED BY 'secret'")
        cursor.execute(f"GRANT ALL ON {theirs}.* TO 'caller'@'%'")
        cursor.execute(f"GRANT EXECUTE ON PROCEDURE `{database}`.record_change TO 'caller'@'%'")
    yield engine.url.set(username="caller", password="secret", database=theirs, query={
        "unix_socket": mariadb_server._socket, "charset": "utf8mb4"
    })  # fmt: skip
    mariadb_server.drop_database(theirs)
    with mariadb_server._root() as cursor:
        cursor.execute("DROP USER 'caller'@'%'")


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_who_may_only_call_it_records_from_another_schema_in_one_transaction(
    engine: Engine, shop: URL, isolation: Any
) -> None:
    change = '{"entity_type": "unit", "entity_id": "a", "event_type": "checked_in", "payload": {}}'
    statement = f"CALL `{engine.url.database}`.record_change('oldhost', %s, NULL)"
    with application(shop, isolation_level=isolation) as caller:
        with caller.connect() as connection:
            connection.exec_driver_sql("INSERT INTO units VALUES (1)")
            connection.exec_driver_sql(statement, (change,))
            connection.rollback()
            assert rows(engine, "SELECT id FROM outbox_events") == []
            connection.exec_driver_sql("INSERT INTO units VALUES (2)")
            connection.exec_driver_sql(statement, (change,))
            connection.commit()
            assert connection.exec_driver_sql("SELECT mine FROM units").all() == [(2,)]
        for table in ("outbox_events", "units", "submitted_keys", "event_rules"):
            with pytest.raises(DBAPIError, match="denied"), caller.connect() as connection:
                connection.exec_driver_sql(f"SELECT 1 FROM `{engine.url.database}`.{table}")
    assert rows(engine, "SELECT source, entity_id FROM outbox_events") == [{"source": "sql", "entity_id": "a"}]


def test_migrate_replaces_the_procedures_and_keeps_the_rights_to_call_them(mariadb_server: PrivateMariaDB) -> None:
    def definitions(engine: Engine) -> dict[str, str]:
        return {name: rows(engine, f"SHOW CREATE PROCEDURE {name}")[0]["Create Procedure"] for name in PROCEDURES}

    with mariadb_server.migrated_database() as urls:
        root = create_engine(mariadb_server.root_url(make_url(urls.app).database or ""))
        before = definitions(root)
        change_sql(root, "CREATE OR REPLACE PROCEDURE record_change() SELECT 'of another version'")
        with mariadb_server._root() as cursor:
            cursor.execute("CREATE OR REPLACE USER 'caller'@'%' IDENTIFIED BY 'secret'")
            cursor.execute(f"GRANT EXECUTE ON PROCEDURE `{root.url.database}`.record_change TO 'caller'@'%'")
        migrate(urls.migration)
        assert {name: text.partition("PROCEDURE")[2] for name, text in definitions(root).items()} == {
            name: text.partition("PROCEDURE")[2] for name, text in before.items()
        }
        with mariadb_server._root() as cursor:
            cursor.execute("SHOW GRANTS FOR 'caller'@'%'")
            assert any("EXECUTE ON PROCEDURE" in grant for (grant,) in cursor.fetchall())
            cursor.execute("DROP USER 'caller'@'%'")
        root.dispose()


def test_the_procedure_runs_with_the_rights_of_the_migration_and_needs_no_more(mariadb_server: PrivateMariaDB) -> None:
    """Of the roles' account it would not: that may change every table, but calls no procedure."""
    with mariadb_server.migrated_database() as urls:
        change = '{"entity_type": "unit", "entity_id": "a", "event_type": "checked_in", "payload": {}}'
        migration = create_engine(urls.migration)
        with migration.begin() as connection:
            assert call(connection, HOST, change).sync_status == "PENDING_SYNC"
        assert "EXECUTE" not in APP_RIGHTS
        migration.dispose()
