"""The whole stack as one object: servers first, then the schema, then the roles; stopped in the reverse order.

An embedded server is not started if its address is given. The roles are the same processes as in a deployment,
configured by their environment. Used by `up` and the demo.
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from oldhost_sync.drivers.mapping import HostMapping
from oldhost_sync.settings import Role, Settings, bind_address
from oldhost_sync.stack.folder import StackFolder, as_api_tokens
from oldhost_sync.stack.forked_child import ForkedChild, begin_loading
from oldhost_sync.stack.machine import StackError, module, pick_port
from oldhost_sync.stack.mariadb import EmbeddedMariaDB
from oldhost_sync.stack.processes import READY_SECONDS_MAX, Child, ChildDied, SignalSafeEvent, StopRequested, Supervisor
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.errors import StoreError

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi-bookings"


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """What to start and where. Port 0 takes a free one; ports of servers that are not started are ignored."""

    folder: Path = Path("var")
    mariadb_port: int = 3307
    temporal_port: int = 7233
    temporal_ui_port: int = 8233
    oldhost_port: int = 9400
    oldhost_admin_port: int = 9401
    latency_ms: float = 400.0
    workers: int = 1
    relays: int = 1
    # Whether the example application runs, too, where its source is (not in an installed wheel).
    example: bool = False


@dataclass
class Addresses:
    """The addresses once everything runs. None: not known, because we did not start it."""

    database_url: str = field(default="", repr=False)
    migration_url: str = field(default="", repr=False)
    temporal: str = ""
    temporal_ui: str | None = None
    oldhost: str = ""
    oldhost_admin: str | None = None
    api: str = ""
    example: str | None = None
    # What the example reads from its environment, also for a copy of it.
    example_environment: dict[str, str] = field(default_factory=dict, repr=False)
    metrics: list[str] = field(default_factory=list)
    sdk_metrics: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Stack:
    """`start` returns when the API answers; `watch` returns after `end`; `stop` leaves no process behind."""

    settings: Settings
    plan: StackPlan
    folder: StackFolder
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    tell: Callable[[str], None] = lambda _message: None
    addresses: Addresses = field(default_factory=Addresses)
    tokens: dict[Role, str] = field(default_factory=dict, repr=False)
    children: dict[str, Child] = field(default_factory=dict)
    _mappings: Mapping[str, HostMapping] = field(default_factory=dict)
    _mariadb: EmbeddedMariaDB | None = None
    _temporal: EmbeddedTemporal | None = None

    def __post_init__(self) -> None:
        self._supervisor = Supervisor(on_restart=self._tell_restart, on_pause=self._tell_pause)

    def start(self) -> Addresses:
        """Start what is missing; PortTaken, ProgramMissing, ChildDied or a StoreError say why it failed.

        StopRequested when `end` was called before it was done; call `stop` then, too.
        """
        begin_loading()
        steps = (
            self._read_mappings,
            self._prepare_api,
            self._start_mariadb,
            self._start_temporal,
            self._start_simulator,
            self._migrate,
            self._start_roles,
        )
        for step in steps:
            if self.ended.is_set():
                raise StopRequested("stopped while starting")
            step()
        return self.addresses

    @property
    def ended(self) -> SignalSafeEvent:
        return self._supervisor.ended

    def watch(self) -> None:
        """Watch until `end`. Raises ChildDied when a part ends that can't be restarted."""
        self._supervisor.watch()

    def poll(self) -> None:
        """Check every part once, for callers with their own loop; call it in the main thread, like `watch`."""
        self._supervisor.poll()

    def end(self) -> None:
        """Interrupt `start`, or let `watch` return. Safe in a signal handler."""
        self.ended.set()

    def stop(self) -> None:
        """Stop everything: the worker first, which drains, and the servers last."""
        self._supervisor.stop()
        if self._temporal is not None:
            self._temporal.stop()
        if self._mariadb is not None:
            self._mariadb.stop()

    def own_database(self, name: str) -> str:
        """The address of an application's own database on the embedded MariaDB; its account may create tables there."""
        if self._mariadb is None:
            raise StackError("the database is given by SYNC_DATABASE_URL: make the application's own there")
        return self._mariadb.create_database(name).migration

    def role_environment(self) -> dict[str, str]:
        """The environment of every role of this stack."""
        own = {name: value for name, value in self.environment.items() if not name.startswith("SYNC_")}
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of these processes would compile the product anew
        return {**own, **self.settings.to_environment(), "TEMPORAL_ADDRESS": self.addresses.temporal}

    # -------------------------------------------------------------------------------------------------------- servers

    def _prepare_api(self) -> None:
        address, port = bind_address(self.settings.api_bind)
        port = pick_port(port, "the API (SYNC_API_BIND)", address)
        shown = "127.0.0.1" if address == "0.0.0.0" else address  # noqa: S104 - compared, not bound
        self.addresses.api = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
        bind = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.settings = self.settings.model_copy(update={"api_bind": bind})
        if not self.settings.api_tokens:
            self.tokens = self.folder.development_tokens()
            self.settings = self.settings.model_copy(update={"api_tokens": as_api_tokens(self.tokens)})
        if not self.settings.act_keys and self.settings.act_keys_file is None:
            self.settings = self.settings.model_copy(update={"act_keys": (secrets.token_hex(),)})

    def _start_mariadb(self) -> None:
        if self.settings.database_url is None:
            self.tell("Starting MariaDB")
            self._mariadb = EmbeddedMariaDB(self.folder.path / "mariadb", self.plan.mariadb_port, ended=self.ended)
            self._mariadb.start()
            self._adopt(self._mariadb.child)
            self.addresses.migration_url = self._mariadb.migration_url
            self.settings = self.settings.model_copy(update={"database_url": self._mariadb.url})
        self.addresses.database_url = self.settings.need_database_url()
        self.addresses.migration_url = self.addresses.migration_url or self.addresses.database_url

    def _start_temporal(self) -> None:
        given = self.environment.get("TEMPORAL_ADDRESS")
        if given:
            self.addresses.temporal = given
            return
        self.tell("Starting Temporal")
        self._temporal = EmbeddedTemporal(
            self.folder.path / "temporal", self.plan.temporal_port, self.plan.temporal_ui_port, ended=self.ended
        )
        self._temporal.start()
        self._adopt(self._temporal.child)
        self.addresses.temporal = self._temporal.address
        self.addresses.temporal_ui = self._temporal.ui_url
        if self.settings.temporal_ui_url is None:
            namespace = f"{self._temporal.ui_url}/namespaces/default"
            self.settings = self.settings.model_copy(update={"temporal_ui_url": namespace})

    def _start_simulator(self) -> None:
        if self.settings.of_host(self.settings.host).url is None:
            self.tell("Starting the OldHost simulator")
            port = pick_port(self.plan.oldhost_port, "the OldHost simulator")
            admin_port = pick_port(self.plan.oldhost_admin_port, "the OldHost simulator's admin port")
            options = {
                "--port": port,
                "--admin-port": admin_port,
                "--latency-ms": self.plan.latency_ms,
                "--ban-seconds": self.settings.of_host(self.settings.host).ban_seconds,
                "--state-file": self.folder.path / "oldhost.json",
            }
            argv = module("oldhost_simulator")
            argv += [str(part) for option in options.items() for part in option]
            simulator = Child("simulator", argv, self.folder.log("simulator"), self.environment, ended=self.ended)
            urls = json.loads(self._first_line(self._adopt(simulator)))
            self.addresses.oldhost_admin = urls["admin"]
            self.settings = self.settings.model_copy(update={"oldhost_url": urls["oldhost"]})
        self.addresses.oldhost = self.settings.urls_by_host()[self.settings.host]

    def _read_mappings(self) -> None:
        """Before anything is started that would have to be stopped because of them."""
        self._mappings = self.settings.mappings()

    def _migrate(self) -> None:
        if not self._mappings and self._is_migrated():
            return
        self.tell("Migrating the database")
        from oldhost_sync.store.schema_migration import migrate  # slow to import, and needed once

        migrate(self.addresses.migration_url, hosts=self.settings.hosts(), mappings=self._mappings)

    def _is_migrated(self) -> bool:
        engine = create_engine(self.addresses.database_url, pool_size=1)
        try:
            check_database(engine, self.settings.hosts())
        except (StoreError, DBAPIError):  # the migration says what is wrong, if anything is
            return False
        finally:
            engine.dispose()
        return True

    @staticmethod
    def _first_line(child: Child) -> str:
        child.wait_until(lambda: "\n" in child.said(), READY_SECONDS_MAX)
        return child.said().splitlines()[0]

    # ---------------------------------------------------------------------------------------------------------- roles

    def _start_roles(self) -> None:
        """Start all at once: most of a role's start is the loading of its modules."""
        self.tell("Starting API, relay and worker")
        starter = self._starter()
        try:
            api = self._start_role("api", "api")
            for number in range(self.plan.relays):
                self._start_role("relay", _numbered("relay", number))
            for number in range(self.plan.workers):
                self._start_role("worker", _numbered("worker", number))
            self._start_example()
            api.wait_until(lambda: _is_healthy(self.addresses.api), READY_SECONDS_MAX)
            starter.wait_until(lambda: not starter.running, READY_SECONDS_MAX)
        finally:
            starter.kill()
        if starter.wait(0) != 0:
            raise ChildDied(starter)

    def _start_example(self) -> None:
        """Nothing waits for it."""
        is_possible = self._mariadb is not None and Role.APP in self.tokens and find_spec("httpx") is not None
        if not (self.plan.example and is_possible and EXAMPLE.exists()):
            return
        port = pick_port(0, "the example application")
        given = {
            "BOOKINGS_DATABASE_URL": self.own_database("bookings"),
            "BOOKINGS_SYNC_URL": self.addresses.api,
            "BOOKINGS_SYNC_TOKEN": self.tokens[Role.APP],
        }
        environment = {**self.environment, **given}
        argv = module("uvicorn", "bookings:running", "--factory", f"--app-dir={EXAMPLE}", f"--port={port}")
        argv.append("--log-level=warning")
        child = ForkedChild("example", argv, self.folder.log("example"), environment, ended=self.ended)
        self._adopt(child, restart=True)
        self.addresses.example, self.addresses.example_environment = f"http://127.0.0.1:{port}", given

    def _starter(self) -> Child:
        """Starts the writer as a user would, so that the writer can be queried before the first change."""
        starter = ForkedChild(
            "starter", module("starter"), self.folder.log("starter"), self.role_environment(), ended=self.ended
        )
        starter.start()
        return starter

    def _start_role(self, role: str, name: str) -> Child:
        environment = self.role_environment()
        if role != "api" and self.settings.metrics_bind is not None:
            bind = _next_bind(self.settings.metrics_bind, self.addresses.metrics, "SYNC_METRICS_BIND")
            environment["SYNC_METRICS_BIND"] = bind
        sdk_bind = environment.pop("SYNC_TEMPORAL_METRICS_BIND", None)
        if role == "worker" and sdk_bind is not None:
            bind = _next_bind(sdk_bind, self.addresses.sdk_metrics, "SYNC_TEMPORAL_METRICS_BIND")
            environment["SYNC_TEMPORAL_METRICS_BIND"] = bind
        argv, log = module("oldhost_sync.cli", role), self.folder.log(name)
        return self._adopt(ForkedChild(name, argv, log, environment, ended=self.ended), restart=True)

    def _adopt(self, child: Child, *, restart: bool = False) -> Child:
        self.children[child.name] = child
        return self._supervisor.add(child, restart=restart)

    def _tell_restart(self, child: Child) -> None:
        self.tell(f"{child.name} ended ({child.how_it_ended()}) and is restarted; its log: {child.log}")

    def _tell_pause(self, child: Child, seconds: float) -> None:
        last = "".join(f"\n    {line}" for line in child.last_lines(3))
        self.tell(f"{child.name} keeps ending; it is restarted in {seconds:.0f} s. Its last log lines:{last}")


def _numbered(role: str, number: int) -> str:
    return role if number == 0 else f"{role}-{number + 1}"


def _is_healthy(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/healthz", timeout=1) as answer:  # noqa: S310 - our own http address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _next_bind(first: str, served: list[str], setting: str) -> str:
    """The next port for a role's metrics: roles get consecutive ports, starting with the one in the setting."""
    address, port = bind_address(first)
    port = pick_port(port + len(served) if port else 0, f"metrics ({setting})", address)
    served.append(f"http://{address}:{port}/metrics")
    return f"{address}:{port}"
