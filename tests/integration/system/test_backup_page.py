"""docs/backup.md, typed literally, on a server with compose's own options and accounts: nothing committed is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.store.engine import check_server, create_engine
from oldhost_sync.store.schema_migration import migrate
from tests.integration.store.writing import recorded
from tests.integration.system.compose_mariadb import ROOT, ComposeMariaDB

pytestmark = [pytest.mark.mariadb, pytest.mark.processes]

PAGE = (ROOT / "docs" / "backup.md").read_text()


def typed(heading: str) -> list[str]:
    """The commands of a section, in order."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^(?: {4}| {7})(\S.*)$", section, re.MULTILINE)


BACK_UP, *COPY_THE_LOG = typed("Back up")
RESTORE = typed("Restore")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ComposeMariaDB]:
    with ComposeMariaDB(tmp_path / "first") as server:
        migrate(server.compose_urls().migration)
        yield server


def engine_of(server: ComposeMariaDB) -> Engine:
    return create_engine(server.compose_urls().app, pool_size=1)


def record(server: ComposeMariaDB, *entities: str) -> None:
    engine = engine_of(server)
    for entity in entities:
        recorded(engine, entity_id=entity)
    engine.dispose()


def everything(server: ComposeMariaDB) -> dict[str, Any]:
    """All rows of all tables, as the roles' account reads them."""
    engine = engine_of(server)
    with engine.connect() as connection:
        tables = connection.execute(text("SHOW TABLES")).scalars().all()
        found = {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM `{name}`")))) for name in tables}
    engine.dispose()
    return found


def test_what_compose_starts_suits_the_roles(server: ComposeMariaDB) -> None:
    engine = engine_of(server)
    check_server(engine)
    engine.dispose()


def test_a_restore_on_the_same_server_ends_at_the_last_commit(server: ComposeMariaDB, tmp_path: Path) -> None:
    record(server, "before-1", "before-2")
    server.types([BACK_UP], tmp_path)
    record(server, "after-1", "after-2", "after-3")
    server.types(COPY_THE_LOG, tmp_path)
    wanted = everything(server)
    engine = engine_of(server)
    with engine.begin() as connection:  # a mistake that a restore is for
        connection.execute(text("DELETE FROM outbox_events"))
    engine.dispose()
    assert everything(server) != wanted
    assert re.search(r"^binlog\.\d+ \d+$", server.types(RESTORE, tmp_path), re.MULTILINE)
    assert everything(server) == wanted
    record(server, "afterwards")


def test_a_restore_on_a_new_server_ends_at_the_last_copy_of_the_log(server: ComposeMariaDB, tmp_path: Path) -> None:
    record(server, "before")
    server.types([BACK_UP], tmp_path)
    for entity in ("after-1", "after-2"):  # each in a log file of its own
        record(server, entity)
        server.types(COPY_THE_LOG, tmp_path)
    wanted = everything(server)
    server.stop()
    with ComposeMariaDB(tmp_path / "second") as new:
        new.types(RESTORE, tmp_path)
        assert everything(new) == wanted
        migrate(new.compose_urls().migration)
        record(new, "afterwards")
