"""The recipe of docs/recording.md for another language, run as it is written: node with mysql2, on a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, rows

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
MYSQL2 = "mysql2@3.24.6"
INSTALL_SECONDS, RUN_SECONDS = 120, 60
THEIRS = "a_node_shop"

# Each call is answered with the row, or with the error's two names.
PROGRAM = """
const mysql = require("mysql2/promise");
%(recipe)s
(async () => {
  const connection = await mysql.createConnection(JSON.parse(process.argv[2]));
  const said = [];
  for (const id of JSON.parse(process.argv[3])) {
    try {
      said.push(await book(connection, id));
    } catch (error) {
      said.push([error.sqlState, error.errno]);
    }
  }
  console.log(JSON.stringify(said));
  await connection.end();
})();
"""


@pytest.fixture(scope="module")
def mysql2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node or npm is not installed")
    folder = tmp_path_factory.mktemp("node")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), MYSQL2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        pytest.skip(f"npm can't install {MYSQL2}: {done.stderr[-200:]}")
    return folder


@pytest.fixture
def shop(mariadb_server: PrivateMariaDB, engine: Engine) -> Iterator[dict[str, Any]]:
    """How the application reaches its own schema, in which nothing is ours."""
    with mariadb_server._root() as cursor:
        cursor.execute(f"CREATE DATABASE {THEIRS}")
        cursor.execute(f"CREATE TABLE {THEIRS}.bookings (id INT PRIMARY KEY)")
        cursor.execute("CREATE OR REPLACE USER 'node'@'%' IDENTIFIED BY 'secret'")
        cursor.execute(f"GRANT SELECT, INSERT ON {THEIRS}.* TO 'node'@'%'")
        cursor.execute(f"GRANT EXECUTE ON PROCEDURE `{engine.url.database}`.record_change TO 'node'@'%'")
    yield {"socketPath": mariadb_server._socket, "user": "node", "password": "secret", "database": THEIRS}
    mariadb_server.drop_database(THEIRS)
    with mariadb_server._root() as cursor:
        cursor.execute("DROP USER 'node'@'%'")


def book(mysql2: Path, shop: dict[str, Any], recipe: str, *ids: int) -> list[Any]:
    program = mysql2 / "book.js"
    program.write_text(PROGRAM % {"recipe": recipe})
    command = ["node", str(program), json.dumps(shop), json.dumps(ids)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
    said: list[Any] = json.loads(done.stdout)
    return said


def test_node_records_in_its_own_transaction(engine: Engine, mysql2: Path, shop: dict[str, Any]) -> None:
    (recipe,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs" / "recording.md").read_text(), re.DOTALL)
    recipe = recipe.replace("oldhost_sync.record_change", f"`{engine.url.database}`.record_change".replace("`", ""))

    (first,) = book(mysql2, shop, recipe, 7)
    assert (first["sync_status"], first["duplicate"], first["idempotency_key"]) == ("PENDING_SYNC", 0, "booking-7")
    (change,) = rows(engine, "SELECT * FROM outbox_events")
    assert change["id"] == first["change_id"]
    assert (change["host"], change["source"], change["payload"]) == (HOST, "shop", '{"guest":7}')

    # Each is refused by somebody, and rolled back: the booking is there already; the key is another change's; the unit
    # has no such id.
    other = recipe.replace("guest: id", "guest: 0").replace("INSERT INTO bookings", "INSERT IGNORE INTO bookings")
    invalid = recipe.replace('"A-101"', '""')
    said = [book(mysql2, shop, each, 7)[0] for each in (recipe, other)] + book(mysql2, shop, invalid, 8)
    assert said == [["23000", 1062], ["OS002", 30002], ["OS001", 30001]]
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 1}]
    assert rows(engine, f"SELECT id FROM {THEIRS}.bookings") == [{"id": 7}]
