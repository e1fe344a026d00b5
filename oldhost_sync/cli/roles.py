"""The roles as commands: each runs one process until it is told to end; `up` runs them all, `demo` shows them at work."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oldhost_sync.cli.printing import console
from oldhost_sync.cli.surroundings import settings, settings_of_a_new_stack
from oldhost_sync.settings import bind_address

if TYPE_CHECKING:
    from temporalio.client import Client

    from oldhost_sync.policy.changes import ChangeRef
    from oldhost_sync.settings import Settings

# Its options are the simulator's own; `oldhost-sync simulator --help` shows them.
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    for command in (up, api, relay, worker, migrate):
        app.command()(command)
    app.command(context_settings=_AS_GIVEN, add_help_option=False)(simulator)


def api() -> None:
    """Serve HTTP: changes in, units and fates out, and what operators need."""
    from oldhost_sync.api import serve
    from oldhost_sync.stack.ports import claim

    _log_to_stderr()
    config = settings()
    address, port = bind_address(config.api_bind)
    if port:  # the server would say it in its own way, among its log lines
        claim(port, "the API (SYNC_API_BIND)", address)
    serve.run(config)


def worker() -> None:
    """Run the writer's workflow and hold the connection to OldHost."""
    import worker as composition

    _log_to_stderr()
    asyncio.run(composition.run(settings()))


def relay() -> None:
    """Hand recorded changes to the writer, and record scheduled ones when they are due."""
    _log_to_stderr()
    asyncio.run(_relay(settings()))


def migrate() -> None:
    """Bring the database's schema up to date; safe to run twice and from two machines."""
    from oldhost_sync.store.migrating import migrate as upgrade

    config = settings()
    revision = upgrade(config.need_database_url(), config.hosts())
    console().print(f"The schema is at revision {revision}.")


def simulator(context: typer.Context) -> None:
    """Play OldHost on a real socket, with faults and an admin port."""
    arguments = [sys.executable, "-m", "oldhost_simulator", *context.args]
    os.execv(sys.executable, arguments)  # noqa: S606 - it is another program, and takes our place


def up(
    folder: Annotated[Path, typer.Option(help="Keeps data, logs and tokens; one `up` at a time in it.")] = Path("var"),
    latency_ms: Annotated[float, typer.Option(min=0, help="The simulator's time for each request.")] = 400.0,
    workers: Annotated[int, typer.Option(min=1, max=16, help="How many worker processes.")] = 1,
    relays: Annotated[int, typer.Option(min=1, max=4, help="How many relay processes.")] = 1,
    mariadb_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one, as for all ports.")] = 3307,
    temporal_port: Annotated[int, typer.Option(min=0, max=65535)] = 7233,
    temporal_ui_port: Annotated[int, typer.Option(min=0, max=65535)] = 8233,
    oldhost_port: Annotated[int, typer.Option(min=0, max=65535)] = 9400,
    oldhost_admin_port: Annotated[int, typer.Option(min=0, max=65535)] = 9401,
) -> None:
    """Run everything on this machine until Ctrl-C; MariaDB, Temporal and OldHost are embedded where no address is set."""
    from oldhost_sync.stack.servers import StackPlan
    from oldhost_sync.stack.up import run_up

    plan = StackPlan(
        folder=folder,
        mariadb_port=mariadb_port,
        temporal_port=temporal_port,
        temporal_ui_port=temporal_ui_port,
        oldhost_port=oldhost_port,
        oldhost_admin_port=oldhost_admin_port,
        latency_ms=latency_ms,
        workers=workers,
        relays=relays,
    )
    raise typer.Exit(run_up(settings_of_a_new_stack(), plan))


async def _relay(config: Settings) -> None:
    """Put the relays together, one for each host, and let them run until SIGTERM or SIGINT."""
    from prometheus_client import CollectorRegistry

    from oldhost_sync.policy.limits import RELAY_POLL_SECONDS
    from oldhost_sync.relay import HostRelay, SharedPoll
    from oldhost_sync.relay.host_relay import CONNECTIONS, RelayTransactions
    from oldhost_sync.store.engine import create_engine
    from oldhost_sync.telemetry import RelayMetrics, serve_metrics

    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    registry = CollectorRegistry()
    stop_metrics = serve_metrics(config.metrics_bind, registry) if config.metrics_bind else lambda: None
    engine = create_engine(config.need_database_url(), pool_size=CONNECTIONS)
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        signalling, metrics, poll = _Signalling(config), RelayMetrics(registry), SharedPoll(RELAY_POLL_SECONDS)
        transactions = RelayTransactions.of(engine)
        async with asyncio.TaskGroup() as relays:
            for host in config.hosts():
                signal_host = partial(signalling.signal, host)
                relay = HostRelay(transactions, signal_host, host, owner=owner, poll=poll, metrics=metrics)
                relays.create_task(relay.run(stop))
    finally:
        engine.dispose()
        stop_metrics()


class _Signalling:
    """Connects to Temporal when there is first something to say: the relay starts also while Temporal is away."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._client: Client | None = None

    async def signal(self, host: str, refs: list[ChangeRef]) -> None:
        from oldhost_sync import temporal

        self._client = self._client or await temporal.connect()
        await temporal.signal_enqueue(self._client, host, temporal.writer_policy(self._config), refs)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of its own parts when it is imported
