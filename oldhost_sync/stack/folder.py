"""The folder of `up`: its lock, the development tokens, and the environment for other shells."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from oldhost_sync.settings import ApiToken, Role
from oldhost_sync.stack.machine import StackError


class FolderInUse(StackError):  # noqa: N818 - it says what happened
    """Another `up` runs in this folder. The operator stops it, or uses another folder."""


class StackFolder:
    """`with StackFolder(path) as folder:` holds the lock, which the kernel releases when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self.path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise FolderInUse(
                f"{self.path} is in use by another `oldhost-sync up` (process {owner}); stop it or name another folder"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def development_tokens(self) -> dict[Role, str]:
        """One token for each role, made on first use and kept in this folder (readable only by its owner)."""
        made = {role.value: f"dev-{role}-{secrets.token_urlsafe(18)}" for role in Role}
        return {Role(role): token for role, token in kept_secrets(self.path / "tokens.json", made).items()}

    def write_environment(self, values: Mapping[str, str]) -> Path:
        """Write what another shell needs to reach this stack: `set -a; . up.env; set +a`."""
        path = self.path / "up.env"
        write_private(path, "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(values.items())))
        return path


def as_api_tokens(tokens: Mapping[Role, str]) -> tuple[ApiToken, ...]:
    """`tokens` as the API's setting: names, roles and hashes."""
    return tuple(
        ApiToken(f"dev-{role}", role, hashlib.sha256(token.encode()).hexdigest()) for role, token in tokens.items()
    )


def kept_secrets(path: Path, made: dict[str, str]) -> dict[str, str]:
    """The content of the file; if it does not exist, it is written with `made`."""
    if not path.exists():
        write_private(path, json.dumps(made, indent=2) + "\n")
    stored: dict[str, str] = json.loads(path.read_text())
    return stored


def write_private(path: Path, content: str) -> None:
    """Write the file atomically, and never readable by others."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    unfinished.replace(path)
