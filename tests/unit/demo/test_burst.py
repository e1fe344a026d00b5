"""The load at real speed is an open loop: it says how long the server takes, whatever the generator does."""

from __future__ import annotations

import asyncio

from oldhost_sync.demo.applications import PER_SECOND, BurstClient, burst_of
from oldhost_sync.demo.compression import peak

CHANGES = burst_of(peak().real, 10_000, seconds=0.1)
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"


def test_its_changes_are_due_at_that_rate_and_numbered_after_the_others() -> None:
    assert len(CHANGES) == PER_SECOND // 10
    assert [change.number for change in CHANGES] == list(range(10_001, 10_031))
    assert 95 <= CHANGES[-1].at_ms <= 100


def test_no_change_waits_for_the_answer_to_another() -> None:
    """A server that answers nobody before it has heard all."""

    async def scenario() -> None:
        heard, all_heard, serving = 0, asyncio.Event(), set[asyncio.Task[None] | None]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            serving.add(asyncio.current_task())
            await reader.readuntil(b"\r\n\r\n")
            heard += 1
            if heard == len(CHANGES):
                all_heard.set()
            await all_heard.wait()
            writer.write(ACCEPTED)
            await reader.read()  # until the client ends the connection
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, asyncio.timeout(30):
            port = server.sockets[0].getsockname()[1]
            burst = await BurstClient(f"http://127.0.0.1:{port}", "a token").make(CHANGES)
            await asyncio.gather(*filter(None, serving))
        assert len(burst.took) == len(burst.late) == len(CHANGES)
        assert not burst.failed

    asyncio.run(scenario())


def test_a_refused_change_is_told_and_a_server_that_is_away_too() -> None:
    async def scenario() -> list[str]:
        return (await BurstClient("http://127.0.0.1:1", "a token").make(CHANGES[:1])).failed

    (failed,) = asyncio.run(scenario())
    assert failed.startswith("demo-10001: 0 ")
