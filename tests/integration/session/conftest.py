from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb
from tests.integration.session.stage import LIMITS, Stage, simulator


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateMariaDB]:
    with private_mariadb() as started:
        yield started


@pytest.fixture
def stage(server: PrivateMariaDB) -> Iterator[Stage]:
    engine, _ = server.fresh_database()
    with simulator() as oldhost:
        stage = Stage(MariaWorld(engine, LIMITS.settle_seconds), oldhost)
        yield stage
        stage.close()
    engine.dispose()
