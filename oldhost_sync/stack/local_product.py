"""`oldhost-sync up`: the whole product on one machine until Ctrl-C; a later start continues where it stopped."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from oldhost_sync.console.paths import LINK, PREFIX
from oldhost_sync.console.sign_in_link import offer_link
from oldhost_sync.settings import Role, Settings, SettingsError
from oldhost_sync.stack.folder import StackFolder
from oldhost_sync.stack.forked_child import end_loading
from oldhost_sync.stack.machine import PortTaken, StackError
from oldhost_sync.stack.processes import StopRequested
from oldhost_sync.stack.servers import Stack, StackPlan
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import DatabaseUnavailable, StoreError
from oldhost_sync.store.transactions import run_in_transaction

# Each message says what to do.
EXPECTED = (StackError, SettingsError, StoreError)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_up(settings: Settings, plan: StackPlan, console: Console | None = None) -> int:
    """Start everything, print the addresses, and run until stopped. Exit code: 0 stopped, 1 something failed.

    Call it in the main thread: it handles SIGINT, SIGTERM and SIGHUP, and its children end with that thread.
    """
    console = console or Console()
    try:
        with StackFolder(plan.folder) as folder:
            return _run(Stack(settings, plan, folder, tell=lambda text: console.print(text, style="dim")), console)
    except EXPECTED as error:
        console.print(Text(f"Error: {_with_advice(error)}", style="red"), soft_wrap=True)
        return 1
    finally:
        end_loading()


def _run(stack: Stack, console: Console) -> int:
    with _ended_by_signals(stack):
        try:
            stack.start()
            commands = for_another_shell(stack)  # before the overview: the file they name must exist then
            console.print(overview(stack))
            if (link := sign_in_link(stack)) is not None:  # not in the panel, which would wrap it
                console.print(Text(f"Sign in to the console, once and within ten minutes:\n  {link}\n"), soft_wrap=True)
            console.print(commands, soft_wrap=True)
            stack.watch()
        except StopRequested:
            console.print("Stopped while starting.")
        finally:
            if stack.children:
                console.print("Stopping; the operation in flight is finished first", style="dim")
            stack.stop()
        console.print("Stopped. All data and logs are kept in", str(stack.folder.path), soft_wrap=True)
        return 0


@contextmanager
def _ended_by_signals(stack: Stack) -> Iterator[None]:
    """A signal only requests the end: stopping takes a limited time, and a second signal does not interrupt it."""
    before = {signum: signal.signal(signum, lambda *_: stack.end()) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def overview(stack: Stack) -> Panel:
    """The addresses of everything."""
    where, folder = stack.addresses, stack.folder
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("API", f"{where.api}  (/docs, and /openapi.json)")
    if where.example is not None:
        table.add_row("Example", f"{where.example}/docs  (examples/fastapi-bookings)")
    table.add_row("Console", f"{where.api}{PREFIX}")
    if where.temporal_ui is not None:
        table.add_row("Temporal's UI", where.temporal_ui)
    table.add_row("Temporal", where.temporal)
    table.add_row("OldHost", where.oldhost)
    if where.oldhost_admin is not None:
        table.add_row("  its admin port", f"{where.oldhost_admin}  (faults, journal, counts)")
    table.add_row("Database", "given by SYNC_DATABASE_URL" if "mariadb" not in stack.children else "private MariaDB")
    for address in (*where.metrics, *where.sdk_metrics):
        table.add_row("Metrics", address)
    for role, token in stack.tokens.items():
        table.add_row(f"Token for {role}", token)
    table.add_row("Data and logs", str(folder.path))
    return Panel(table, title="OldHost Sync is up", subtitle="Ctrl-C stops everything", expand=False)


def sign_in_link(stack: Stack) -> str | None:
    """A link that signs a browser on this machine in as an operator, once; None without an operator's token."""
    token = next((token for token in stack.settings.api_tokens if token.role is Role.OPS), None)
    if token is None:
        return None
    engine = create_engine(stack.addresses.database_url, pool_size=1)
    try:
        host = stack.settings.host
        secret = run_in_transaction(engine, lambda connection: offer_link(connection, host, token))
    finally:
        engine.dispose()
    return f"{stack.addresses.api}{LINK}?secret={secret}"


def for_another_shell(stack: Stack) -> Text:
    """The commands for another shell, to be copied. Writes the file that they name: addresses, and tokens by role."""
    environment = {
        name: value
        for name, value in stack.role_environment().items()
        if name.startswith("SYNC_") or name == "TEMPORAL_ADDRESS"
    }
    environment |= {f"{role.upper()}_TOKEN": token for role, token in stack.tokens.items()}
    if stack.addresses.example is not None:
        environment |= {"EXAMPLE_URL": stack.addresses.example, **stack.addresses.example_environment}
    path = shlex.quote(str(stack.folder.write_environment(environment)))
    activate = Path(sys.prefix, "bin", "activate")
    commands = [f"set -a; . {path}; set +a", "oldhost-sync status"]
    if activate.exists():
        commands.insert(0, f". {shlex.quote(str(activate))}")
    return Text("In another shell:\n" + "".join(f"  {command}\n" for command in commands))


def _with_advice(error: Exception) -> str:
    if isinstance(error, PortTaken):
        other = "choose another port (see `oldhost-sync up --help`; for the API SYNC_API_BIND=127.0.0.1:PORT)."
        return f"{error}. Stop the program that uses it, or {other}"
    if isinstance(error, DatabaseUnavailable):
        advice = "Start it, or check SYNC_DATABASE_URL (if it is not set, a private one is started)."
        return f"the database can't be reached: {error}. {advice}"
    return str(error)
