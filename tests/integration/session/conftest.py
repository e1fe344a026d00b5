from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.foreign_host.host import ForeignHost
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import LIMITS, Stage, simulator


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB) -> Iterator[Stage]:
    with mariadb_server.fresh_database() as engine, simulator() as oldhost:
        stage = Stage(MariaWorld(engine, LIMITS.settle_seconds), oldhost)
        yield stage
        stage.close()


@pytest.fixture
def foreign(mariadb_server: PrivateMariaDB) -> Iterator[ForeignStage]:
    with mariadb_server.fresh_database() as engine, ForeignHost() as host:
        stage = ForeignStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        yield stage
        stage.close()
