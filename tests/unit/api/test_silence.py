"""Who is silent, and who could not be heard."""

from __future__ import annotations

import asyncio
import threading

from oldhost_sync.api.bounded_waits import is_silent


def test_who_answers_while_we_stand_still_was_not_silent() -> None:
    async def play() -> bool:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_soon(threading.Event().wait, 0.5)
        loop.call_later(0.51, answer.set_result, None)
        return await is_silent(answer, 0.4)

    assert asyncio.run(play()) is False


def test_who_never_answers_is_silent() -> None:
    async def play() -> bool:
        return await is_silent(asyncio.get_running_loop().create_future(), 0.01)

    assert asyncio.run(play()) is True
