"""Tokens and keys as settings and files hold them. An error names a wrong one by its position, never by its value."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path

from oldhost_sync.fields.scalar import read_day
from oldhost_sync.watched_file import read_lines

# 128 bits as hexadecimal digits.
ACT_KEY_LENGTH_MIN = 32
_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
# The name of a token, a host or a key.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
AES_KEY_BYTES = 32


class Role(StrEnum):
    """app: writes changes and reads their fate · viewer: reads · ops: everything."""

    APP = "app"
    VIEWER = "viewer"
    OPS = "ops"


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token's owner, its role, and the hosts that it is for (none given: all). It holds only the token's SHA-256."""

    name: str
    role: Role
    sha256_hex: str
    # The last day on which it is valid, in UTC; None: it does not expire.
    last_day: date | None = None
    hosts: frozenset[str] = frozenset()

    def is_for(self, host: str) -> bool:
        return not self.hosts or host in self.hosts

    @property
    def fingerprint(self) -> bytes:
        """32 bytes that show whether it is still the same token; the token's SHA-256 can't be derived from them."""
        return hashlib.sha256(bytes.fromhex(self.sha256_hex)).digest()

    @property
    def entry(self) -> str:
        """The token in the form that the settings use."""
        last_day = [] if self.last_day is None else [self.last_day.isoformat()]
        hosts = f"@{'+'.join(sorted(self.hosts))}" if self.hosts else ""
        return ":".join([self.name, f"{self.role.value}{hosts}", self.sha256_hex, *last_day])

    def has_expired(self, now: datetime) -> bool:
        """`now`: with a time zone."""
        return self.last_day is not None and now.astimezone(UTC).date() > self.last_day


def parse_act_keys(text: str) -> tuple[str, ...]:
    """The keys, newest first; ValueError says which one is too short, never the key itself."""
    keys = tuple(each.strip() for each in text.split(",") if each.strip())
    for number, key in enumerate(keys, start=1):
        if len(key) < ACT_KEY_LENGTH_MIN:
            raise ValueError(f"key {number} must have {ACT_KEY_LENGTH_MIN} characters or more: `openssl rand -hex 32`")
    return keys


def parse_api_tokens(text: str) -> tuple[ApiToken, ...]:
    """`name:role:sha256hex, …` as tokens; ValueError says which one is wrong and how, never the hash itself."""
    tokens = tuple(
        _parse_token(entry.strip(), number) for number, entry in enumerate(text.split(","), start=1) if entry.strip()
    )
    check_names(tokens)
    return tokens


def check_names(tokens: Sequence[ApiToken]) -> None:
    """ValueError when two tokens have the same name. A token and its successor may have the same name if they have the
    same role and the older one has a last day.
    """
    seen: dict[str, tuple[int, ApiToken]] = {}
    for number, token in enumerate(tokens, start=1):
        first, other = seen.setdefault(token.name, (number, token))
        same_role, lasting = other.role is token.role, other.last_day is None and token.last_day is None
        if other is not token and (lasting or not same_role):
            raise ValueError(
                f"tokens {first} and {number} have the same name {token.name!r}; only a token and its successor may, "
                "if they have the same role and the older one has a last day"
            )
        if other.last_day is not None:
            seen[token.name] = (number, token)


def read_token_file(file: Path) -> tuple[ApiToken, ...]:
    """One token on each line; `#` begins a comment. OSError, or ValueError that names the line."""
    lines = [line.replace(",", " ") for line in read_lines(file)]
    try:
        return parse_api_tokens(",".join(lines))
    except ValueError as error:
        raise ValueError(f"{file} (token N is the one on line N): {error}") from None


def all_tokens(of_settings: tuple[ApiToken, ...], file: Path | None) -> tuple[ApiToken, ...]:
    """The tokens of the settings and of the file, if there is one. Raises what :func:`read_token_file` raises."""
    return of_settings + (read_token_file(file) if file else ())


def _parse_token(entry: str, number: int) -> ApiToken:
    parts = entry.split(":")
    if len(parts) not in {3, 4}:
        raise ValueError(f"token {number} must be name:role:sha256hex; it has {len(parts)} part(s)")
    name, whose, digest, *last_day = parts
    role, at, named = whose.partition("@")
    hosts = frozenset(named.split("+")) if at else frozenset()
    if not all(NAME.fullmatch(host) for host in hosts):
        raise ValueError(f"token {number} ({name}) has an invalid host name: give hosts as {role}@host+host")
    if not NAME.fullmatch(name):
        raise ValueError(f"token {number} needs a name of letters, digits, '_', '.' or '-', at most 64")
    if role not in set(Role):
        raise ValueError(f"token {number} ({name}) has the role {role!r}; roles are {', '.join(Role)}")
    if not _SHA256_HEX.fullmatch(digest.lower()):
        raise ValueError(f"token {number} ({name}) needs the token's SHA-256 as 64 hexadecimal digits")
    day = _parse_day(last_day[0], name, number) if last_day else None
    return ApiToken(name, Role(role), digest.lower(), day, hosts)


def _parse_day(text: str, name: str, number: int) -> date:
    return read_day(f"token {number} ({name}): its last day", text)


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """An AES-256 key, and the name that is stored next to what it encrypted."""

    key_id: str
    secret: bytes = field(repr=False)

    @property
    def entry(self) -> str:
        """The key in the form that the settings use."""
        return f"{self.key_id}={base64.b64encode(self.secret).decode()}"


def parse_encryption_keys(text: str) -> tuple[EncryptionKey, ...]:
    """`id=base64, …` as keys; the first one encrypts. ValueError says which one is wrong, never the key itself."""
    keys: dict[str, EncryptionKey] = {}
    for number, entry in enumerate((each.strip() for each in text.split(",") if each.strip()), start=1):
        key_id, _, encoded = entry.partition("=")
        try:
            secret = base64.b64decode(encoded, validate=True)
        except ValueError:
            secret = b""
        if not NAME.fullmatch(key_id) or len(secret) != AES_KEY_BYTES:
            raise ValueError(f"key {number} must be id=key, the key 32 bytes in base64: `openssl rand -base64 32`")
        if key_id in keys:
            raise ValueError(f"key {key_id!r} is given twice")
        keys[key_id] = EncryptionKey(key_id, secret)
    return tuple(keys.values())
