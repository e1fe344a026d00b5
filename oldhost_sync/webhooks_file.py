"""The file of SYNC_WEBHOOKS_FILE: a TOML table for each webhook, `[webhooks.shop]`, with the fields of `Webhook`.

It is read once, at the start, and all mistakes are told at once, without their values. Files of secrets are read again
when they change.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oldhost_sync.fields.toml_file import Mistake, read_toml
from oldhost_sync.policy.limits import NAME_PATTERN
from oldhost_sync.watched_file import FILE_BYTES_MAX, WatchedFile, WatchedList, read_lines

# Each has a thread in each relay.
WEBHOOKS_MAX = 20
_TABLES = "give each webhook as a table, [webhooks.NAME]"
_KEYS = ("url", "secret_file", "host", "source")
# As Standard Webhooks has it; two while a secret is replaced.
_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
_SECRETS = range(1, 3)


@dataclass(frozen=True, slots=True)
class Webhook:
    """`secrets`: the keys that sign, newest first. `source`: only the fates of what it recorded; None: of all."""

    name: str
    host: str
    url: str = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)
    source: str | None = None


def read_webhooks(path: Path, hosts: Sequence[str]) -> tuple[Webhook, ...]:
    """`hosts`: those that are served; the first is meant where none is given. ValueError tells all that is wrong."""
    file = read_toml(path, FILE_BYTES_MAX)
    file.refuse(_mistakes(path, file.content, hosts))
    return tuple(
        Webhook(
            name,
            given.get("host", hosts[0]),
            given["url"],
            WatchedList(_watched(path.parent / given["secret_file"])),
            given.get("source"),
        )
        for name, given in file.content["webhooks"].items()
    )


def secrets_of(file: Path) -> tuple[bytes, ...]:
    """One secret on each line. OSError or ValueError, which does not show them."""
    lines = [line.strip() for line in read_lines(file) if line.strip()]
    try:
        keys = tuple(base64.b64decode(line.removeprefix(_PREFIX), validate=True) for line in lines)
    except binascii.Error:
        keys = ()
    fits = len(keys) in _SECRETS and all(len(key) in _SECRET_BYTES for key in keys)
    if not fits or not all(line.startswith(_PREFIX) for line in lines):
        raise ValueError("give one secret or two, each on a line: whsec_ and 24 to 64 bytes in base64")
    return keys


def _watched(file: Path) -> WatchedFile[tuple[bytes, ...]]:
    return WatchedFile(file, secrets_of, "a webhook's secret_file")


def _mistakes(path: Path, document: dict[str, Any], hosts: Collection[str]) -> Iterator[Mistake]:
    for key in document:
        if key != "webhooks":
            yield (key,), f"this is unknown: {_TABLES}"
    webhooks = document.get("webhooks")
    if not isinstance(webhooks, dict) or not 1 <= len(webhooks) <= WEBHOOKS_MAX:
        yield ("webhooks",), f"{_TABLES}, from 1 to {WEBHOOKS_MAX}"
        return
    for name, given in webhooks.items():
        if not re.fullmatch(NAME_PATTERN, name) or not isinstance(given, dict):
            yield ("webhooks", name), _TABLES
            continue
        for key, why in _mistakes_of_one(path, given, hosts):
            yield ("webhooks", name, key), why


def _mistakes_of_one(path: Path, given: dict[str, Any], hosts: Collection[str]) -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        if key not in _KEYS:
            yield key, f"there is no such setting; there are {', '.join(_KEYS)}"
        elif not isinstance(value, str) or not value:
            yield key, "give it as text"
            return
    if not is_safe(given.get("url", "")):
        yield "url", "give it as https://…, or http:// on this machine, without user and password"
    if given.get("host") not in {None, *hosts}:
        yield "host", "this host is not served here"
    try:
        secrets_of(path.parent / given.get("secret_file", ""))
    except OSError as error:
        yield "secret_file", f"it can't be read: {error.strerror}"
    except ValueError as error:
        yield "secret_file", str(error)


def is_safe(url: str) -> bool:
    """Whether it is https, or http that does not leave this machine."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if not parts.hostname or "@" in parts.netloc or not url.isascii() or re.search(r"\s", url):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
