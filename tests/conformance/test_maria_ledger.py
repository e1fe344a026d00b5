from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.ledger_suite import SETTLE_SECONDS, LedgerConformance
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB, private_mariadb

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateMariaDB]:
    with private_mariadb() as started:
        yield started


class TestMariaLedger(LedgerConformance):
    @pytest.fixture
    def world(self, server: PrivateMariaDB) -> Iterator[MariaWorld]:
        engine, _ = server.fresh_database()
        yield MariaWorld(engine, SETTLE_SECONDS)
        engine.dispose()
