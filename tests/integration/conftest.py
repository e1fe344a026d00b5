from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.activities.webhook import Webhook, serving


@pytest.fixture
def world(mariadb_server: PrivateMariaDB) -> Iterator[MariaWorld]:
    """A ledger of its own in MariaDB."""
    with mariadb_server.fresh_database() as engine:
        yield MariaWorld(engine, 10.0)


@pytest.fixture
def epoch(world: MariaWorld) -> int:
    """A session's epoch; OldHost's first nonce was 501."""
    epoch = world.ledger.take_over("test").epoch
    world.ledger.adopt_first(epoch, 501)
    return epoch


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serving() as webhook:
        yield webhook
