"""Which workers are at work: each says so every ten seconds, and when it leaves. Nothing is decided by it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

SAID_EVERY_SECONDS = 10.0
# Silent for longer, it is not at work: killed, frozen, or cut off from the database.
SILENT_SECONDS_MAX = 25
NAME_LENGTH_MAX = 255

_SAY = text(
    "INSERT INTO workers (host, name) VALUES (:host, :name) "
    "ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6), left_at = NULL"
)
_LEAVE = text(
    "UPDATE workers SET seen_at = UTC_TIMESTAMP(6), left_at = UTC_TIMESTAMP(6) WHERE host IN :hosts AND name = :name"
).bindparams(bindparam("hosts", expanding=True))
# Who has been gone for a day is no news.
_FORGET = text("DELETE FROM workers WHERE host IN :hosts AND seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY").bindparams(
    bindparam("hosts", expanding=True)
)


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """Of the worker `name`, for the hosts that it serves. A database that is away is told next time."""

    engine: Engine
    hosts: Sequence[str]
    name: str

    def begin(self) -> None:
        """It begins; those that have been gone for long are forgotten."""
        self._write((_FORGET, {"hosts": self.hosts}))
        self.say()

    def say(self) -> None:
        """It is at work."""
        self._write((_SAY, [{"host": host, "name": self._name} for host in sorted(self.hosts)]))

    def leave(self) -> None:
        """It is not any more."""
        self._write((_LEAVE, {"hosts": self.hosts, "name": self._name}))

    @property
    def _name(self) -> str:
        return storable(self.name, NAME_LENGTH_MAX)

    def _write(self, done: tuple[TextClause, Any]) -> None:
        try:
            run_in_transaction(self.engine, lambda connection: connection.execute(*done), attempts=1)
        except StoreError as error:
            logger.debug("that %s is at work can't be told: %s", self.name, error)
        except DBAPIError:
            logger.exception("that %s is at work can't be told", self.name)
