"""The run: start the stack and the applications, ban once in the middle, wait until all is sent, submit a burst at real
speed, give the verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy.engine import Engine
from temporalio.client import Client

from oldhost_sync.demo import diagram
from oldhost_sync.demo.applications import PER_SECOND, Applications, Burst, BurstClient, burst_of
from oldhost_sync.demo.compression import Compressed, environment, plan_for, settings_for
from oldhost_sync.demo.diagram import Story, story_of
from oldhost_sync.demo.facts import Admin, as_accepted, books, gather
from oldhost_sync.demo.picture import DemoFigures, DemoProgress, headline, table
from oldhost_sync.demo.verdict import Run, failed, verdict
from oldhost_sync.planner import arrivals, rehearse
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Role
from oldhost_sync.stack.folder import StackFolder
from oldhost_sync.stack.forked_child import end_loading
from oldhost_sync.stack.servers import Stack
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.outbox.books import Books
from oldhost_sync.temporal.client import data_converter

# Not more often: a query takes some milliseconds on the same cores.
PROGRESS_SECONDS = 1.0
# How long to wait beyond the planner's prediction; what is left then is reported as a failure.
PATIENCE_SECONDS = 60.0
PICTURE = Path("var") / "demo.svg"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What the user asked for. `folder` None: a temporary one, kept only when something failed."""

    compressed: Compressed
    keep: bool = False
    folder: Path | None = None


def run_demo(options: DemoOptions, console: Console) -> int:
    """The whole demonstration; exit code 0 when every promise was kept. Call it in the main thread."""
    begun = time.monotonic()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="oldhost-sync-demo-"))
    worth_keeping = True
    try:
        with StackFolder(folder) as locked:
            stack = Stack(
                settings_for(options.compressed),
                plan_for(options.compressed, folder),
                locked,
                environment=environment(),
                tell=lambda text: console.print(text, style="dim"),
            )
            try:
                stack.start()
                code = _play(stack, options.compressed, console, begun)
                worth_keeping = code != 0
                if options.keep:
                    _stay(stack, console)
            finally:
                console.print("Stopping", style="dim")
                stack.stop()
    except KeyboardInterrupt:
        worth_keeping = False
        raise
    finally:
        end_loading()
        _leave(folder, console, keep=worth_keeping or options.folder is not None)
    return code


def _play(stack: Stack, compressed: Compressed, console: Console, begun: float) -> int:
    console.print(headline(compressed, stack.addresses.temporal_ui))
    engine = create_engine(stack.addresses.database_url, pool_size=2)
    try:
        run = asyncio.run(_Demonstration(stack, compressed, engine, console).run())
    finally:
        engine.dispose()
    findings = verdict(run)
    console.print(table(findings))
    _show(story_of(run), console)
    broken = failed(findings)
    took = f"It took {time.monotonic() - begun:.0f} s."
    if broken:
        console.print(f"[bold red]FAILED[/]: {len(broken)} of the promises above were not kept. {took}", markup=True)
        for problem in (run.receipts.failed + run.burst.failed)[:5]:
            console.print(problem, style="red", markup=False)
        return 1
    console.print(f"[bold green]PASSED[/]: all promises above were kept. {took}", markup=True)
    return 0


def _show(shown: Story, console: Console) -> None:
    """In the terminal, and as a picture in a file."""
    for line in diagram.lines(shown):
        console.print(line, soft_wrap=True)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(diagram.svg(shown))
    console.print(f"The same as a picture: {PICTURE}", soft_wrap=True)


class _Demonstration:
    def __init__(self, stack: Stack, compressed: Compressed, engine: Engine, console: Console) -> None:
        self._stack = stack
        self._compressed = compressed
        self._engine = engine
        self._console = console
        self._host = stack.settings.host
        assert stack.addresses.oldhost_admin is not None, "the demonstration has its own simulator"
        self._admin = Admin(stack.addresses.oldhost_admin)
        self._changes = arrivals(compressed.played)
        self._ban = (0.0, 0.0)

    async def run(self) -> Run:
        predicted = await asyncio.to_thread(rehearse, self._compressed.played, None, self._changes)
        converter = data_converter(encryption_keys(self._stack.settings))
        client = await Client.connect(self._stack.addresses.temporal, data_converter=converter)
        applications = Applications(self._stack.addresses.api, self._stack.tokens[Role.APP], client, self._host)
        started_at = time.time()
        watching = asyncio.create_task(self._watch(applications))
        banning = asyncio.create_task(self._ban_once())
        try:
            receipts = await applications.make(self._changes)
            await banning
            await self._until_drained(started_at + predicted.drained_ms / 1000 + PATIENCE_SECONDS)
        finally:
            for task in (watching, banning):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        facts = await asyncio.to_thread(gather, self._engine, self._host, self._admin)
        load = (os.getloadavg()[0], os.cpu_count() or 1)
        came = as_accepted(self._changes, facts.changes, started_at)
        planned = await asyncio.to_thread(rehearse, self._compressed.played, None, came)
        burst = await self._burst()
        return Run(self._compressed, started_at, self._ban, planned, receipts, facts, load, burst)

    async def _burst(self) -> Burst:
        """After all that, 300 changes a second in real time: OldHost takes its real time for each operation."""
        real, played = self._compressed.real, self._compressed.played
        changes = burst_of(real, len(self._changes))
        self._console.print(f"{len(changes):,} changes at {PER_SECOND}/s in real time", style="dim")
        slower = {"name": "slow", "extra_ms": real.latency_ms - played.latency_ms}
        await asyncio.to_thread(self._admin.ask, "/faults", slower)
        return await BurstClient(self._stack.addresses.api, self._stack.tokens[Role.APP]).make(changes)

    async def _ban_once(self) -> None:
        played = self._compressed.played
        assert played.ban_at_s is not None
        await asyncio.sleep(played.ban_at_s)
        answer = await asyncio.to_thread(self._admin.ask, "/actions/ban", {"seconds": played.ban_s})
        self._ban = (answer["banned_until"] - played.ban_s, answer["banned_until"])

    async def _until_drained(self, deadline: float) -> None:
        while time.time() < deadline:
            found = await asyncio.to_thread(books, self._engine, self._host)
            if found.waiting + found.in_flight == 0 and found.accepted >= len(self._changes):
                return
            await asyncio.sleep(PROGRESS_SECONDS)

    async def _watch(self, applications: Applications) -> None:
        with DemoProgress(self._console, self._compressed) as progress:
            while True:
                self._stack.poll()
                seen = await asyncio.to_thread(self._look)
                progress.show(
                    DemoFigures(applications.receipts.count, len(applications.receipts.failed), self._ban, *seen)
                )
                await asyncio.sleep(PROGRESS_SECONDS)

    def _look(self) -> tuple[Books, dict[str, Any]]:
        return books(self._engine, self._host), self._admin.ask("/stats")


def _stay(stack: Stack, console: Console) -> None:
    console.print(
        f"Still running: Temporal's UI {stack.addresses.temporal_ui}, API {stack.addresses.api}. Ctrl-C stops it."
    )
    with contextlib.suppress(KeyboardInterrupt):
        stack.watch()


def _leave(folder: Path, console: Console, *, keep: bool) -> None:
    if keep:
        console.print(f"Data and logs are in {folder}", soft_wrap=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
