"""The ledger on the simulation's database keeps the suite that MariaDB's keeps: what is simulated there holds here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.driver_kit.memory_database import MemoryDatabase, PlainEngine
from tests.conformance.ledger_suite import SETTLE_SECONDS, LedgerConformance
from tests.conformance.maria_world import MariaWorld


class Clock:
    """A moment later with every look."""

    def __init__(self) -> None:
        self._now = 1_750_000_000.0

    def __call__(self) -> float:
        self._now += 1e-5
        return self._now


class TestSimulatedLedger(LedgerConformance):
    @pytest.fixture
    def world(self) -> Iterator[Any]:
        database = MemoryDatabase(Clock())
        yield MariaWorld(cast("Engine", PlainEngine(database)), SETTLE_SECONDS)
        database.raw.close()
