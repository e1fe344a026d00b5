"""Where a command finds its servers: the environment, `.env`, or the stack that `oldhost-sync up` runs in this folder.

`up` writes the addresses of its servers into `var/up.env`. They are used only if neither the database nor Temporal is
set elsewhere, so that no command works on the local stack by mistake.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from dotenv import dotenv_values
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.transactions import run_in_transaction

T = TypeVar("T")

STACK_ENV = Path("var", "up.env")
# Settings that an SDK reads only from the environment.
_READ_BY_SDKS = ("TEMPORAL_", "OTEL_")
_ADDRESSES = ("SYNC_DATABASE_URL", "TEMPORAL_ADDRESS")


def settings() -> Settings:
    """The settings of a command that works on a running system; SettingsError says what is wrong."""
    adopt(os.environ, dotenv_values(".env"), dotenv_values(STACK_ENV))
    return load_settings()


def settings_of_a_new_stack() -> Settings:
    """The settings by which `up` decides which servers to start; they ignore an earlier stack's addresses."""
    adopt(os.environ, dotenv_values(".env"), {})
    return load_settings()


def adopt(
    environment: MutableMapping[str, str], dotenv: Mapping[str, str | None], stack: Mapping[str, str | None]
) -> None:
    """Complete `environment`: the SDKs' settings from `dotenv`, which they do not read, and all of a running stack."""
    for name, value in dotenv.items():
        if name.startswith(_READ_BY_SDKS) and value is not None:
            environment.setdefault(name, value)
    if any(environment.get(name) or dotenv.get(name) for name in _ADDRESSES):
        return
    for name, value in stack.items():
        if value is not None and not dotenv.get(name):
            environment.setdefault(name, value)


@contextmanager
def database(settings: Settings) -> Iterator[Engine]:
    """The database for a command, with one connection. Raises SchemaTooOld or UnknownHost."""
    engine = create_engine(settings.need_database_url(), pool_size=1)
    try:
        check_database(engine, (settings.host,))
        yield engine
    finally:
        engine.dispose()


def in_database(settings: Settings, fn: Callable[[Connection], T]) -> T:
    """Run `fn` in one transaction of :func:`database`."""
    with database(settings) as engine:
        return run_in_transaction(engine, fn)
