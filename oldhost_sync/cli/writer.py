"""How commands call the writer: with timeouts that suit a person waiting at a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from oldhost_sync.environment import database
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Settings
from oldhost_sync.store.errors import DatabaseUnavailable, TransactionContended
from oldhost_sync.temporal.client import connect
from oldhost_sync.temporal.writer_client import Cause, WriterClient, WriterUnavailable
from workflows.messages import OperatorAct

if TYPE_CHECKING:
    from oldhost_sync.api.writer_link import TemporalWriterLink

# A query needs one workflow task: milliseconds, unless no worker runs.
QUERY_SECONDS_MAX = 5.0
# An update also writes to the ledger, and retries while the database is unavailable.
UPDATE_SECONDS_MAX = 15.0


def client(settings: Settings) -> WriterClient:
    return WriterClient(
        settings.host,
        query_seconds=QUERY_SECONDS_MAX,
        update_seconds=UPDATE_SECONDS_MAX,
        connect=partial(connect, keys=encryption_keys(settings)),
    )


def link(settings: Settings, host: str) -> TemporalWriterLink:
    """As the API asks a writer: with its words for a writer that does not answer."""
    from oldhost_sync.api.writer_link import TemporalWriterLink

    return TemporalWriterLink(host, partial(connect, keys=encryption_keys(settings)))


def query(settings: Settings, name: str, *arguments: object) -> Any:
    """The writer's answer; WriterError says why there is none, UnknownHost that its host does not exist."""
    return _asked(settings, client(settings).query(name, *arguments))


def update(settings: Settings, name: str, request: OperatorAct) -> Any:
    """Carry out an operator's command; WriterError says why it was not, UnknownHost that its host does not exist."""
    return _asked(settings, client(settings).update(name, request))


def _asked(settings: Settings, question: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run(question)
    except WriterUnavailable as error:
        if error.cause is Cause.NO_WRITER and settings.database_url is not None:
            with suppress(DatabaseUnavailable, TransactionContended), database(settings):
                pass  # a host whose name was mistyped has no writer either
        raise
