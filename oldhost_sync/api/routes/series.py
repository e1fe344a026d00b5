"""The host's situation in words, and its load over an hour, a day or a week: backlog, accepted and applied changes,
emergencies.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from fastapi import FastAPI, Query

from oldhost_sync.api.access.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.situation_reader import SituationReader
from oldhost_sync.api.view_schemas import Series, SeriesPoint, WriterSituation
from oldhost_sync.store.views.load_series import RINGS, read_series


class SeriesSpan(StrEnum):
    """The keys of RINGS."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class SeriesRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._situation_reader = SituationReader(dependencies)

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "series")
        summary = "The load over time, oldest first"
        add("GET", "/api/series", self.read, Series, summary, WATCHERS, (405, 422))
        summary = "What is wrong, since when, why, and what to do about it"
        add("GET", "/api/situation", self.situation, WriterSituation, summary, WATCHERS, (405,))

    async def read(
        self,
        span: Annotated[
            SeriesSpan, Query(description="How far back; one point is 10 s, 1 min or 10 min")
        ] = SeriesSpan.HOUR,
    ) -> Series:
        """The active relay records the load every ten seconds. A bucket in which no relay was active is missing."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: read_series(connection, host, span.value))
        points = [SeriesPoint(**asdict(each)) for each in found]
        return Series(span=span.value, step_seconds=RINGS[span.value].step_s, points=points)

    async def situation(self) -> WriterSituation:
        """Also available while Temporal or the database is away; the answer then says so."""
        return WriterSituation(**asdict((await self._situation_reader.look()).situation))
