"""What all tests share: a real MariaDB and Temporal servers of their own, and an environment without surprises.

The servers start when the first test asks for them and end with the session; no test sees another's rows.
"""

from __future__ import annotations

import gc
import os
import sysconfig
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# The machines are shared: how long an example takes says nothing about it.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from temporalio.testing import WorkflowEnvironment

    from oldhost_sync.stack.mariadb import DatabaseUrls
    from oldhost_sync.stack.temporal import EmbeddedTemporal
    from tests.conformance.private_mariadb import PrivateMariaDB

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    """Neither the developer's settings nor an inactive venv may change what a test sees."""
    for name in [name for name in os.environ if name.startswith(("SYNC_", "TEMPORAL_", "OTEL_"))]:
        del os.environ[name]
    os.environ["PATH"] = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", "")))
    from oldhost_sync.settings import Settings

    Settings.model_config["env_file"] = None


def pytest_collection_finish() -> None:
    """What is loaded by now stays: to look through these 700,000 objects once takes seconds on a busy machine."""
    gc.collect()
    gc.freeze()


# Quick and telling first: a broken rule of the policy is better read there than in a soak (the workflows' files are the
# longest of them). Then what takes longest and mostly waits, beside it what works: nobody waits at the end for a file
# that began late.
ORDER = (
    "architecture",
    "workflows",
    "unit",
    "simulator",
    "replay",
    "simulation",
    "faults",
    "browser",
    "integration/system",
    "integration/stack",
    "integration/demo",
    "mutants",
    "integration/store",
    "integration/session",
    "conformance",
    "integration",
)


# Slow as a whole: together they take as long as all others, and what they find is rarely what one has just broken.
SLOW = (
    "faults/",
    "integration/cli/test_commands.py",
    "integration/console/",
    "integration/ledger/",
    "integration/relay/test_hosts_apart.py",
    "integration/relay/test_writer_health.py",
    "integration/stack/",
    "integration/store/test_books.py",
    "integration/store/test_callers_transaction.py",
    "integration/store/test_indexes.py",
    "integration/store/test_worker_watch.py",
    "integration/system/",
    "integration/traces/",
    "simulation/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders in ORDER, any other folder after them."""
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _rank(item.path.parent.relative_to(Path(__file__).parent).as_posix()))


def _rank(folder: str) -> int:
    matches = (rank for rank, first in enumerate(ORDER) if f"{folder}/".startswith(f"{first}/"))
    return next(matches, len(ORDER))


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    """One MariaDB for the session. A test that stops or kills it starts it again; its port stays the same."""
    from tests.conformance.private_mariadb import PrivateMariaDB

    with PrivateMariaDB(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def database(mariadb_server: PrivateMariaDB) -> Iterator[DatabaseUrls]:
    """A database as new, migrated: `.app` for the roles, `.migration` for who changes tables."""
    with mariadb_server.migrated_database() as urls:
        yield urls


@pytest.fixture
def database_url(database: DatabaseUrls) -> str:
    """A new, migrated database, for the application's account (rows only)."""
    return database.app


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a new, migrated database."""
    from oldhost_sync.store.engine import create_engine

    # The machines are shared: who gets no CPU for three seconds would lose its transaction. That has tests of its own.
    engine = create_engine(database_url, idle_transaction_seconds=30)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def temporal_dev_server() -> Iterator[EmbeddedTemporal]:
    """One Temporal dev server in memory for the session: workflows need ids (or hosts) of their own test. People may
    pause workflows.
    """
    from oldhost_sync.stack.temporal import EmbeddedTemporal

    with EmbeddedTemporal(None, options=["--dynamic-config-value", "frontend.WorkflowPauseEnabled=true"]) as server:
        yield server


TimeSkipping = Callable[[], AbstractAsyncContextManager["WorkflowEnvironment"]]


@pytest.fixture
def time_skipping_env() -> TimeSkipping:
    """`async with time_skipping_env() as env:` is a Temporal server of the test's own, in which time skips."""
    return _time_skipping


@asynccontextmanager
async def _time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    from tests.time_skipping import start_time_skipping

    async with await start_time_skipping() as env:
        yield env
