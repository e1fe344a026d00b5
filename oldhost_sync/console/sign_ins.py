"""Who is signed in: a cookie with 256 random bits, known to the database by its SHA-256.

Every request looks up its sign-in, so signing out ends it at once in every process; so does removing the token from the
settings. Open streams are looked up together, once a second. A sign-in that nobody uses ends, too; a page that is open
and live is no use. While the database is unavailable, sign-ins that this process has seen stay valid until they expire:
people must be able to read the page that says so.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection

from oldhost_sync.api.access import WATCHERS, Caller, Tokens
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.console.sign_in_link import SECRET_BYTES, digest_of
from oldhost_sync.policy.rules.operator_act import Channel
from oldhost_sync.store import access
from oldhost_sync.store.access import TokenHolder
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.errors import StoreError

SECRET_LENGTH_MAX = 64
# People of one on-call rota, many times over.
REMEMBERED_MAX = 1_000
# Timeout for looking up a sign-in that is known here: a page must be quick even while the database hangs.
KNOWN_SECONDS_MAX = 1.0
# How often it is looked up whether the sign-ins of open streams last.
STREAM_LOOK_SECONDS = 1.0
IDLE_SECONDS = 7_200.0
SIGNED_IN, SIGNED_OUT = "sign-in", "sign-out"


@dataclass(frozen=True, slots=True)
class SignIn:
    """One sign-in. `ends`: when, in seconds of a monotonic clock."""

    digest: bytes
    caller: Caller
    ends: float


@dataclass(frozen=True, slots=True)
class _Remembered:
    holder: TokenHolder
    ends: float


class SignIns:
    """The sign-ins of one host's console. Raises Problem or StoreError if it needs the database and can't reach it."""

    def __init__(
        self,
        host: str,
        tokens: Tokens,
        database: Database,
        seconds: float,
        *,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self._host = host
        self._tokens = tokens
        self._database = database
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        # The sign-ins that streams have asked for since the last look, and those that had ended by then.
        self._asked: set[bytes] = set()
        self._ended: frozenset[bytes] = frozenset()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    def owner_of(self, token: str) -> Caller | None:
        """The caller who may view the console with `token`; None for an unknown token and for an application's."""
        caller = self._tokens.identify(b"Bearer " + token.encode())
        return caller if caller is not None and caller.role in WATCHERS else None

    async def open(self, caller: Caller) -> str:
        """Sign `caller` in; returns the cookie's secret."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        holder = TokenHolder(caller.name, caller.fingerprint, self.seconds)
        digest = digest_of(secret)
        who = replace(caller, channel=Channel.CONSOLE).operator

        def write(connection: Connection) -> None:
            access.open_session(connection, self._host, digest, holder)
            record_act(connection, host=self._host, action=SIGNED_IN, operator=who, reason="")

        await self._database.run(write)
        return secret

    async def find(self, secret: str, *, is_use: bool = True) -> SignIn | None:
        """The sign-in of this secret; None when it has ended or never existed. `is_use`: a person does something."""
        if len(secret) > SECRET_LENGTH_MAX:
            return None
        digest = digest_of(secret)
        known = self._remembered.get(digest)
        try:
            async with asyncio.timeout(None if known is None else KNOWN_SECONDS_MAX):
                holder = await self._database.run(lambda c: self._find(c, digest))
        except (Problem, StoreError, TimeoutError):
            if known is None:
                raise
            return self._sign_in(digest, known)
        if holder is None:
            self._remembered.pop(digest, None)
            return None
        remembered = _Remembered(holder, self._clock() + holder.seconds_left)
        self._remember(digest, remembered)
        if is_use and holder.is_due:
            with suppress(Problem, StoreError):  # it is stored with the next use
                await self._database.run(lambda c: access.use_session(c, self._host, digest))
        return self._sign_in(digest, remembered)

    def _find(self, connection: Connection, digest: bytes) -> TokenHolder | None:
        return access.find_session(connection, self._host, digest, self._idle_seconds)

    async def lasts(self, sign_in: SignIn) -> bool:
        """Whether it has not ended, as of STREAM_LOOK_SECONDS ago at most. While the database is away it goes on."""
        self._asked.add(sign_in.digest)
        async with self._looking:
            if self._clock() >= self._looked_at + STREAM_LOOK_SECONDS:
                await self._look()
                self._looked_at = self._clock()
        has_owner = self._tokens.owner(sign_in.caller.name, sign_in.caller.fingerprint) is not None
        return has_owner and sign_in.digest not in self._ended

    async def _look(self) -> None:
        asked, self._asked = self._asked, set()
        with suppress(Problem, StoreError, TimeoutError):
            async with asyncio.timeout(KNOWN_SECONDS_MAX):
                lasting = await self._database.run(
                    lambda c: access.lasting_sessions(c, self._host, asked, self._idle_seconds)
                )
                self._ended = frozenset(asked - lasting)

    async def end(self, sign_in: SignIn) -> None:
        """Sign out, everywhere and at once."""

        def write(connection: Connection) -> None:
            access.end_session(connection, self._host, sign_in.digest)
            record_act(connection, host=self._host, action=SIGNED_OUT, operator=sign_in.caller.operator, reason="")

        await self._database.run(write)
        self._remembered.pop(sign_in.digest, None)
        self._ended |= {sign_in.digest}

    async def use_link(self, secret: str) -> Caller | None:
        """The caller whom this link signs in; it works once. None: it was used, it is too old, or its token is gone."""
        digest = digest_of(secret)
        holder = await self._database.run(lambda c: access.use_link(c, self._host, digest))
        return None if holder is None else self._caller(holder)

    def _sign_in(self, digest: bytes, remembered: _Remembered) -> SignIn | None:
        caller = self._caller(remembered.holder)
        if caller is None or self._clock() >= remembered.ends:
            return None
        return SignIn(digest, caller, remembered.ends)

    def _caller(self, holder: TokenHolder) -> Caller | None:
        """The token's owner with its current role; None when the token is gone, replaced, or now an application's."""
        caller = self._tokens.owner(holder.name, holder.fingerprint)
        return replace(caller, channel=Channel.CONSOLE) if caller is not None and caller.role in WATCHERS else None

    def _remember(self, digest: bytes, remembered: _Remembered) -> None:
        self._remembered[digest] = remembered
        self._remembered.move_to_end(digest)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
