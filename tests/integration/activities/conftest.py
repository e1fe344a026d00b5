from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.activities.webhook import Webhook, serving


@pytest.fixture
def world(mariadb_server: PrivateMariaDB) -> Iterator[MariaWorld]:
    with mariadb_server.fresh_database() as engine:
        yield MariaWorld(engine, 10.0)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serving() as webhook:
        yield webhook
