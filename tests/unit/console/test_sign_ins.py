"""A sign-in that is known here is not waited for while the database hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oldhost_sync.api.access import Tokens
from oldhost_sync.console import sign_ins
from oldhost_sync.console.sign_ins import SignIns
from oldhost_sync.settings import ApiToken, Role
from oldhost_sync.store.access import TokenHolder

TOKEN = ApiToken("vera", Role.VIEWER, "ab" * 32)


class HangingDatabase:
    """Answers once, then never."""

    def __init__(self) -> None:
        self.hangs = False

    async def run(self, _fn: object) -> TokenHolder:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return TokenHolder(TOKEN.name, TOKEN.fingerprint, 60.0)


def test_a_known_sign_in_goes_on_until_its_time_while_the_database_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    database: Any = HangingDatabase()
    known = SignIns("h", Tokens([TOKEN]), database, 60.0, clock=lambda: now[0])

    async def play() -> list[bool]:
        found = [await known.find("secret") is not None]
        monkeypatch.setattr(sign_ins, "KNOWN_SECONDS_MAX", 0.0)
        database.hangs = True
        found.append(await known.find("secret") is not None)
        now[0] += 61
        found.append(await known.find("secret") is not None)
        return found

    assert asyncio.run(play()) == [True, True, False]
