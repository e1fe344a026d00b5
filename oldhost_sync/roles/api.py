"""The API's process: settings in, a server out. After SIGTERM it finishes the running requests."""

from __future__ import annotations

import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import Door, Tokens
from oldhost_sync.api.app import create_app
from oldhost_sync.api.connection import BoundedConnection, ConnectionCount
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.routes.hosts import HostApps
from oldhost_sync.api.telemetry import RequestMetrics
from oldhost_sync.api.writer_link import TemporalWriterLink
from oldhost_sync.console.app import ConsoleOptions, mount_console
from oldhost_sync.credentials import all_tokens
from oldhost_sync.policy.rules.quota import Quotas
from oldhost_sync.roles.process import collect_only_what_comes, share_among_threads
from oldhost_sync.secret_keys import encryption_keys, signing_keys
from oldhost_sync.settings import Settings, SettingsError, bind_address
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.errors import AccessRefused, DatabaseUnavailable, TransactionContended
from oldhost_sync.temporal import client as temporal
from oldhost_sync.traces.tracer import role_tracer

logger = logging.getLogger(__name__)

# For connections to MariaDB and Temporal, refused ones that are not closed yet, and libraries.
FILES_BESIDE_CONNECTIONS = 200


def build(settings: Settings) -> Dependencies:
    """The dependencies of the routes. Opens no connection: the API also starts while MariaDB or Temporal is away."""
    hosts = settings.hosts()
    tokens = {host: _tokens(settings, host) for host in hosts}
    writers = {host: _writer(settings, host) for host in hosts}
    engine = connect_for_api(settings.need_database_url(), http_limits.database_connections(len(hosts)))
    return Dependencies(
        host=settings.host,
        tokens=tokens[settings.host],
        database=Database(engine, hosts=len(hosts)),
        writer=writers[settings.host],
        policies=temporal.writer_policies(settings),
        quiet_hours={host: settings.of_host(host).quiet_hours for host in hosts}.__getitem__,
        called=settings.called,
        tracer=role_tracer(settings, "api"),
        of_each_token=Quotas(settings.quota_requests, settings.quota_changes, settings.quota_emergencies),
        tokens_by_host=tokens,
        writers_by_host=writers,
    )


def _writer(settings: Settings, host: str) -> TemporalWriterLink:
    connect = partial(temporal.connect, keys=encryption_keys(settings))
    return TemporalWriterLink(host, connect, act_keys=signing_keys(settings))


def _tokens(settings: Settings, host: str) -> Tokens:
    try:
        return Tokens(settings.api_tokens, file=settings.api_tokens_file, host=host)
    except (OSError, ValueError) as error:
        raise SettingsError(f"SYNC_API_TOKENS_FILE: {error}") from None


def serve_others(app: FastAPI, home: Dependencies, settings: Settings) -> None:
    """Add the other hosts: an application for each, sharing the database connections."""
    others = {host: create_app(of_other(home, host), console_of(settings)) for host in settings.hosts()[1:]}
    app.add_middleware(HostApps, home=settings.host, others=others)
    app.state.others = tuple(others.values())
    ends = [each.state.end_streams for each in (app, *others.values())]
    app.state.end_streams = partial(_end_all, ends)


def of_other(home: Dependencies, host: str) -> Dependencies:
    """The dependencies of another host than SYNC_HOST."""
    return replace(
        home,
        host=host,
        tokens=home.tokens_by_host[host],
        writer=home.writers_by_host[host],
    )


async def _end_all(ends: Sequence[Callable[[], Awaitable[None]]]) -> None:
    for end in ends:
        await end()


def configure(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """No access log: it takes a tenth of a write's time, its paths contain ids, and metrics have the same counts."""
    address, port = bind_address(settings.api_bind)
    metrics: RequestMetrics = app.state.metrics
    at_most, of_one = settings.api_connections, settings.api_connections_per_address
    count = ConnectionCount(at_most, of_one, metrics.connection_refused)
    metrics.watch_connections(lambda: float(count.open))
    return uvicorn.Config(
        app,
        host=address,
        port=port,
        loop="uvloop",
        http=cast(type[BoundedConnection], partial(BoundedConnection, count=count)),
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.api_idle_seconds,
        timeout_graceful_shutdown=http_limits.SHUTDOWN_SECONDS,
        log_config=None,
    )


def console_of(settings: Settings) -> Callable[[FastAPI, Dependencies], Door]:
    """Returns the function that adds the console to an application."""
    options = ConsoleOptions(
        settings.console_origin,
        settings.console_session_seconds,
        settings.temporal_ui_url,
        webhook=settings.alert_webhook_url is not None,
        temporal_keys=encryption_keys(settings),
        home=settings.host,
        idle_seconds=settings.console_idle_seconds,
    )
    return partial(mount_console, options=options)


class ServerOfStreams(uvicorn.Server):
    """Ends the event streams first at shutdown: otherwise they would last for the whole shutdown timeout."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI)
        await app.state.end_streams()
        await super().shutdown(sockets)


def run(settings: Settings, *more: Callable[[FastAPI, Dependencies], Door | None]) -> None:
    """Serve until SIGTERM or SIGINT, then raise SystemExit(0). `more` as in :func:`create_app`."""
    share_among_threads()
    _allow_files(settings.api_connections + FILES_BESIDE_CONNECTIONS)
    if not settings.api_tokens and settings.api_tokens_file is None:
        logger.warning(
            "neither SYNC_API_TOKENS nor SYNC_API_TOKENS_FILE is set: requests that need a token will be refused"
        )
    if not signing_keys(settings):
        logger.info(
            "neither SYNC_ACT_KEYS nor SYNC_ACT_KEYS_FILE is set: the audit will show operators of the writer as not "
            "verified"
        )
    _check_database(settings)
    # When all requests are answered, the server raises the signal again, which by default would kill the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    dependencies = build(settings)
    warn_of_tokens_for_other_hosts(settings)
    app = create_app(dependencies, console_of(settings), *more)
    serve_others(app, dependencies, settings)
    server = ServerOfStreams(configure(app, settings))
    collect_only_what_comes()
    server.run()


def warn_of_tokens_for_other_hosts(settings: Settings) -> None:
    """Only a warning: another process may serve a host that looks mistyped here."""
    for token in all_tokens(settings.api_tokens, settings.api_tokens_file):
        if elsewhere := token.hosts - set(settings.hosts()):
            logger.warning("the token of %s is for hosts not served here: %s", token.name, ", ".join(sorted(elsewhere)))


def _allow_files(count: int) -> None:
    """Raise the limit of open files: each connection needs one, and without any no request or query is possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        soft = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < count:
            logger.warning("SYNC_API_CONNECTIONS needs %d open files, and this process may have %d", count, soft)


def _check_database(settings: Settings) -> None:
    """Raises SchemaTooOld, UnknownHost or AccessRefused. The API also starts while the database is away; /readyz then
    checks it.
    """
    engine = create_engine(settings.need_database_url(), pool_size=1)
    try:
        check_database(engine, settings.hosts())
    except AccessRefused:
        raise  # most likely a mistake in SYNC_DATABASE_URL
    except (DatabaseUnavailable, TransactionContended) as error:
        logger.warning("the database is away (%s): its schema and hosts will be checked when it is back", error)
    finally:
        engine.dispose()


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
