from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb
from tests.integration.activities.webhook import Webhook, serving


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateMariaDB]:
    with private_mariadb() as started:
        yield started


@pytest.fixture
def world(server: PrivateMariaDB) -> Iterator[MariaWorld]:
    engine, _ = server.fresh_database()
    yield MariaWorld(engine, 10.0)
    engine.dispose()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serving() as webhook:
        yield webhook
