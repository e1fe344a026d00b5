"""The whole product for an application's tests: MariaDB, Temporal, OldHost's simulator, relay, worker and API, as real
processes on free ports. The kernel ends them with the process that started them, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from oldhost_sync.settings import Role, Settings
from oldhost_sync.stack.folder import StackFolder
from oldhost_sync.stack.forked_child import begin_loading, end_loading
from oldhost_sync.stack.servers import Stack, StackPlan

if TYPE_CHECKING:
    from oldhost_sync.http_client import SyncClient

# Tests do not wait for two minutes until a debounced change is sent.
QUICK = {"debounce_seconds": 0.2, "max_wait_seconds": 1.0, "settle_seconds": 4.0, "request_timeout_seconds": 1.0}
LATENCY_MS = 5.0


class _OnlyGiven(Settings):
    """No setting of the application's environment reaches a test."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@dataclass(frozen=True)
class RunningStack:
    """The fixture `oldhost_sync_stack`. `database_url`: of the account that reads and writes rows; `migration_url`: of
    the one that may create tables, your own, too. `token`, `operators_token`: of the API. `simulator`: the admin port
    of the simulated OldHost (faults, journal, counts). `own_database(name)`: the address of a database beside ours, for
    the application's tables; its account may create them, and record changes with `schema="oldhost_sync"`.
    """

    api: str
    database_url: str = field(repr=False)
    migration_url: str = field(repr=False)
    token: str = field(repr=False)
    operators_token: str = field(repr=False)
    simulator: str
    own_database: Callable[[str], str] = field(repr=False)

    def client(self) -> SyncClient:
        """Of the API, as an application's; it needs httpx."""
        from oldhost_sync.http_client import SyncClient

        return SyncClient(self.api, self.token)


@contextmanager
def running_stack(folder: Path, settings: Mapping[str, Any]) -> Iterator[RunningStack]:
    """Raises StackError if a program is missing; the message says which. Call it in the main thread."""
    begin_loading()
    plan = StackPlan(
        folder=folder, mariadb_port=0, temporal_port=0, temporal_ui_port=0, oldhost_port=0, oldhost_admin_port=0,
        latency_ms=LATENCY_MS,
    )  # fmt: skip
    given = _OnlyGiven(**{"api_bind": "127.0.0.1:0", **QUICK, **settings})
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SYNC_", "TEMPORAL_"))}
    try:
        with StackFolder(folder) as held:
            stack = Stack(given, plan, held, environment)
            try:
                where = stack.start()
                yield RunningStack(
                    where.api, where.database_url, where.migration_url, stack.tokens[Role.APP], stack.tokens[Role.OPS],
                    where.oldhost_admin or "", stack.own_database,
                )  # fmt: skip
            finally:
                stack.stop()
    finally:
        end_loading()
