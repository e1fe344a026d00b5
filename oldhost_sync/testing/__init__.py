"""For an application's own tests with pytest. Nothing is loaded unasked: name it in the topmost `conftest.py`,

    pytest_plugins = ["oldhost_sync.testing"]

`oldhost_sync_recorder`: changes are recorded in the application's own test database, SQLite, without a server.
`oldhost_sync_stack`: the whole product, running, once for the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from oldhost_sync.store.intake import batch_recorder, change_recorder
from oldhost_sync.testing.recorder import Recorder, StoredChange

__all__ = ["Recorder", "StoredChange", "oldhost_sync_recorder", "oldhost_sync_settings", "oldhost_sync_stack"]

_NEEDS = (
    "oldhost_sync_stack runs the whole product: install its wheel with the extra `embedded` (the applications' client "
    "is not enough), and MariaDB's server, such as Debian's mariadb-server-core"
)


@pytest.fixture
def oldhost_sync_recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """`record_change` and `record_changes` take a connection to SQLite in this test; the recorder tells what they
    recorded, and gives changes their fates.
    """
    recorder = Recorder()
    for module in (change_recorder, batch_recorder):
        monkeypatch.setattr(module, "statements_of", recorder.statements_of)
    return recorder


@pytest.fixture(scope="session")
def oldhost_sync_settings() -> dict[str, Any]:
    """The stack's settings, such as `{"debounce_seconds": 5}`: define your own fixture of this name."""
    return {}


@pytest.fixture(scope="session")
def oldhost_sync_stack(
    tmp_path_factory: pytest.TempPathFactory, oldhost_sync_settings: dict[str, Any]
) -> Iterator[Any]:
    """A `running_stack.RunningStack` on free ports. LWW changes are sent after 0.2 s, and OldHost takes 5 ms for each.
    Each process of pytest-xdist has one of its own.
    """
    try:  # by name: the client's wheel has no product
        running = import_module("oldhost_sync.testing.running_stack")
        machine = import_module("oldhost_sync.stack.machine")
    except ModuleNotFoundError as missing:
        pytest.fail(f"{_NEEDS} (no module {missing.name})", pytrace=False)
    try:
        with running.running_stack(tmp_path_factory.mktemp("oldhost-sync"), oldhost_sync_settings) as stack:
            yield stack
    except machine.StackError as error:
        pytest.fail(f"{error}. {_NEEDS}", pytrace=False)
