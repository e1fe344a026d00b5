from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.ledger_suite import SETTLE_SECONDS, LedgerConformance
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb


class TestMariaLedger(LedgerConformance):
    @pytest.fixture
    def world(self, mariadb_server: PrivateMariaDB) -> Iterator[MariaWorld]:
        with mariadb_server.fresh_database() as engine:
            yield MariaWorld(engine, SETTLE_SECONDS)
