"""The books, counted at a limited rate: counting is slow if many changes are kept, and many clients may ask at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from oldhost_sync.api import limits
from oldhost_sync.api.database import Database
from oldhost_sync.store.views import overview


class BookCount:
    """`overview.read_status`, shared by all requests within a few seconds."""

    def __init__(self, host: str, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._seen: tuple[float, dict[str, Any]] | None = None
        self._looking = asyncio.Lock()

    async def read(self) -> dict[str, Any]:
        """Raises Problem or StoreError."""
        async with self._looking:
            now = self._clock()
            if self._seen is None or now >= self._seen[0]:
                books = await self._database.run(lambda connection: overview.read_status(connection, self._host))
                ended = self._clock()
                self._seen = (ended + max(limits.BOOKS_SECONDS, (ended - now) / limits.BOOKS_SHARE_MAX), books)
            return self._seen[1]
