"""A MariaDB that is far away: a way to the one on this machine, on which each packet takes its time."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from typing import Self


class FarDatabase:
    """A way to MariaDB on which each packet takes `ms` in each direction, kept in its order."""

    def __init__(self, port: int, ms: float) -> None:
        self._port, self._seconds = port, ms / 1000
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = started.result(30)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def url(self, database_url: str) -> str:
        """`database_url`, by this way."""
        return re.sub(r":\d+/", f":{self.port}/", database_url)

    async def _end(self) -> None:
        self._server.close()
        carrying = asyncio.all_tasks() - {asyncio.current_task()}
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(self._carry(reader, there_writer), self._carry(there_reader, writer))
        finally:
            for each in (there_writer, writer):
                each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self._loop.call_later(self._seconds, writer.write, data)
        self._loop.call_later(self._seconds, writer.close)
