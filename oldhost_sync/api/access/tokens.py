"""The known tokens: those of the settings, and those of a file that is read again when it changes; and when each was
last used.

The server knows only SHA-256 digests. They are looked up by a MAC whose key only this process has: nobody can choose
what is compared with a known one, so the time taken reveals nothing about the digests.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from oldhost_sync.api.access.rights import Caller
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.credentials import ApiToken, all_tokens, check_names
from oldhost_sync.probes.health import running_during
from oldhost_sync.store.access import note_uses
from oldhost_sync.store.errors import StoreError
from oldhost_sync.watched_file import WatchedFile

# As long as the MAC itself (HMAC-SHA256).
MAC_KEY_BYTES = 32


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    token: ApiToken
    caller: Caller


class _Index:
    """The known tokens by a MAC of their digest, and by name; a token and its successor have the same name."""

    def __init__(self, tokens: Sequence[ApiToken], host: str | None) -> None:
        check_names(tokens)
        self._key = secrets.token_bytes(MAC_KEY_BYTES)
        self._by_mac: dict[bytes, _Known] = {}
        self._by_name: dict[str, list[_Known]] = {}
        for token in tokens:
            if host is None or token.is_for(host):
                caller = Caller(token.name, token.role, fingerprint=token.fingerprint)
                known = _Known(bytes.fromhex(token.sha256_hex), token, caller)
                self._by_mac[self._mac(known.digest)] = known
                self._by_name.setdefault(token.name, []).append(known)

    def of_digest(self, digest: bytes) -> _Known | None:
        known = self._by_mac.get(self._mac(digest))
        return known if known is not None and hmac.compare_digest(known.digest, digest) else None

    def of_name(self, name: str) -> Sequence[_Known]:
        return self._by_name.get(name, ())

    def _mac(self, digest: bytes) -> bytes:
        return hmac.digest(self._key, digest, "sha256")


class Tokens:
    """`file`: a file with more tokens. `host`: tokens for other hosts are unknown here; None: all tokens are known.
    `now`: the time of day, for expiry; `clock`: seconds, monotonic.

    Raises ValueError or OSError if the file can't be used at the start.
    """

    def __init__(
        self,
        tokens: Iterable[ApiToken],
        *,
        file: Path | None = None,
        host: str | None = None,
        now: Callable[[], datetime] = _now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        of_settings = tuple(tokens)
        self._now = now
        self._known: Callable[[], _Index]
        if file is None:
            index = _Index(of_settings, host)
            self._known = lambda: index
        else:
            watched = WatchedFile(
                file, lambda more: _Index(all_tokens(of_settings, more), host), "SYNC_API_TOKENS_FILE", clock=clock
            )
            self._known = watched.value
        self._used: dict[bytes, str] = {}

    def identify(self, authorization: bytes | None) -> Caller | None:
        """The caller for an `Authorization` header; None if it has no known and valid token."""
        known = self._find(authorization)
        if known is None or known.token.has_expired(self._now()):
            return None
        self._used[known.token.fingerprint] = known.token.name
        return known.caller

    def why_refused(self, authorization: bytes | None) -> str:
        """Why :meth:`identify` returned None; reveals nothing of a secret."""
        if not authorization:
            return "no token"
        known = self._find(authorization)
        return "an unknown token" if known is None else f"the token of {known.token.name}, which has expired"

    def owner(self, name: str, fingerprint: bytes) -> Caller | None:
        """The caller whose token has this name and fingerprint; None if it was removed, replaced, or has expired."""
        for known in self._known().of_name(name):
            same = hmac.compare_digest(known.token.fingerprint, fingerprint)
            if same and not known.token.has_expired(self._now()):
                return known.caller
        return None

    def knows(self, name: str) -> bool:
        """Whether a token of this name is known, expired or not."""
        return bool(self._known().of_name(name))

    def take_used(self) -> dict[bytes, str]:
        """The fingerprints and names of the tokens used since the last time."""
        used, self._used = self._used, {}
        return used

    def _find(self, authorization: bytes | None) -> _Known | None:
        scheme, _, token = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self._known().of_digest(hashlib.sha256(token.strip()).digest())


KEPT_EVERY_SECONDS = 60.0


class LastUses:
    """Stores the tokens' last uses in the database once a minute, so that a request costs no write; while that is away,
    keeps one entry for each token in memory.
    """

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
