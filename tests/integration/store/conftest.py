"""A real MariaDB for the store's tests, and an empty database with the product's tables for each. Recording has a
second one, which passes the same tests: an application's own SQLite, with the test kit's recorder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from oldhost_sync import record_change
from oldhost_sync.testing import Recorder, oldhost_sync_recorder
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store import writing
from tests.integration.store.procedure_door import record_by_procedure
from tests.integration.store.writing import RECORDERS

__all__ = ["oldhost_sync_recorder"]

# Of these modules the tests that are not marked ON_MARIADB run on both.
RECORDING = ("test_recording", "test_batches")
DOORS: dict[str, writing.Door] = {"python": record_change, "procedure": record_by_procedure}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where and how a test records, if it does not say so itself. The stored procedure is MariaDB's only."""
    said = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    names = {"engine", "door"} & set(metafunc.fixturenames) - said
    if metafunc.module.__name__.rpartition(".")[2] not in RECORDING:
        names -= {"engine"}
    if names == {"engine", "door"}:
        pairs = [("mariadb", "python"), ("mariadb", "procedure"), ("sqlite", "python")]
        metafunc.parametrize(("engine", "door"), pairs, indirect=True)
    elif "engine" in names:
        metafunc.parametrize("engine", ["mariadb", "sqlite"], indirect=True)
    elif "door" in names:
        metafunc.parametrize("door", DOORS, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if getattr(request, "param", "mariadb") == "sqlite":
        path, recorder = request.getfixturevalue("tmp_path"), request.getfixturevalue("oldhost_sync_recorder")
        with recording_in(path / "application.db", recorder) as engine:
            yield engine
    else:
        server: PrivateMariaDB = request.getfixturevalue("mariadb_server")
        with server.fresh_database() as engine:
            yield engine


@contextmanager
def recording_in(path: Path, recorder: Recorder) -> Iterator[Engine]:
    """An engine on SQLite whose times are times, as those of MariaDB's driver."""
    sqlite3.register_converter("DATETIME", lambda text: datetime.fromisoformat(text.decode()))
    engine = create_engine(f"sqlite:///{path}", connect_args={"detect_types": sqlite3.PARSE_DECLTYPES})
    RECORDERS[engine] = recorder
    with engine.begin() as connection, recorder.statements_of(connection, None):
        pass  # so that a test finds tables where nothing was recorded
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> writing.Door:
    """A test that uses it runs once by each door: what `record` does there, the stored procedure does, too."""
    monkeypatch.setattr(writing, "the_door", DOORS[request.param])
    return DOORS[request.param]
