"""When each token was last used: stored once a minute, so that a request costs no write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError

from oldhost_sync.api.access.tokens import Tokens
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.probes.health import running_during
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.last_uses import note_uses

KEPT_EVERY_SECONDS = 60.0


class LastUses:
    """Stores the tokens' last uses in the database; while that is away, keeps one entry for each token in memory."""

    def __init__(self, host: str, tokens: Tokens, database: Database) -> None:
        self._host = host
        self._tokens = tokens
        self._database = database
        self._waiting: dict[bytes, str] = {}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Store uses regularly until the body ends, and then once more."""
        try:
            async with running_during(self._run):
                yield
        finally:
            await self.keep()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(KEPT_EVERY_SECONDS)
            await self.keep()

    async def keep(self) -> None:
        """Store the uses since the last time."""
        self._waiting |= self._tokens.take_used()
        uses = dict(self._waiting)
        if not uses:
            return
        try:
            await self._database.run(lambda connection: note_uses(connection, self._host, uses))
        except (Problem, StoreError, SQLAlchemyError):
            return
        self._waiting.clear()
