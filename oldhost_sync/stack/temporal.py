"""A Temporal dev server of our own, with its UI: in memory, or in a database file that outlives it.

The binary comes with the `embedded` extra; without it, the SDK downloads one, which is kept.
It is ready when a client gets an answer for the namespace, not when a port is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.stack.machine import ProgramMissing, find_program, pick_port
from oldhost_sync.stack.processes import Child, EmbeddedServer, ProcessError, SignalSafeEvent

T = TypeVar("T")

INSTALL_ADVICE = "install it with `pip install 'oldhost-sync[embedded]'`, or set TEMPORAL_ADDRESS"
# A write-ahead log, still synced at each commit: with SQLite's own journal the server manages some 100 commits a
# second, which kept 10 hosts at 400 ms 70 % busy instead of 99.5 % (docs/performance.md).
DURABLE_AND_QUICK = ("--sqlite-pragma=journal_mode=wal", "--sqlite-pragma=synchronous=2")
NAMESPACE = "default"


class EmbeddedTemporal(EmbeddedServer):
    """`with EmbeddedTemporal(folder) as server: client = await Client.connect(server.address)`.

    With a folder, workflows survive `stop`, `kill` and `start`; without one they end with the server. The
    ports stay the same, so that clients find the server again.
    """

    def __init__(
        self,
        folder: Path | None,
        port: int | None = None,
        ui_port: int | None = None,
        *,
        options: Sequence[str] = (),
        ended: SignalSafeEvent | None = None,
    ) -> None:
        self._memory: tempfile.TemporaryDirectory[str] | None = None
        self._persistent = folder is not None
        self.folder = folder.absolute() if folder is not None else None
        self._options = tuple(options)
        super().__init__(ended)
        self.port, self.ui_port = port or 0, ui_port or 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"

    def start(self) -> None:
        """Start and return once it answers for the namespace."""
        try:
            self._start(self._folder())
        except BaseException:
            self._forget_memory()
            raise

    def _start(self, folder: Path) -> None:
        program = find_program("temporal") or _downloaded(folder / "bin")
        port, ui_port = self.port, self.ui_port

        def child() -> Child:
            self.port, self.ui_port = pick_port(port, "Temporal"), pick_port(ui_port, "Temporal's UI")
            log = folder / "logs" / "temporal.log"
            return Child("temporal", self._command(program), log, ended=self._ended)

        self._start_child(child, lambda: answers(self.address), "address already in use", pinned=bool(port or ui_port))

    def stop(self) -> None:
        """An orderly end (SIGTERM, wait)."""
        if self._child is not None:
            self._child.stop()
        self._forget_memory()

    def _forget_memory(self) -> None:
        if self._memory is not None:
            self._memory.cleanup()
            self._memory = None

    def _folder(self) -> Path:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self.folder
        if self._memory is None:
            self._memory = tempfile.TemporaryDirectory(prefix="sync-temporal-")
        return Path(self._memory.name)

    def _command(self, program: str) -> list[str]:
        command = [
            program,
            "server",
            "start-dev",
            "--ip=127.0.0.1",
            f"--port={self.port}",
            f"--ui-port={self.ui_port}",
            f"--namespace={NAMESPACE}",
            "--log-level=error",
            *self._options,
        ]
        if not self._persistent:
            return command
        return [*command, f"--db-filename={self._folder() / 'temporal.db'}", *DURABLE_AND_QUICK]


def answers(address: str, seconds: float = 2.0) -> bool:
    """Whether a Temporal server at `address` answers for our namespace. May be called inside an event loop, too."""
    return _run_apart(_answers(address, seconds))


def _run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in its own loop and thread: this thread may already run a loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _answers(address: str, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            client = await Client.connect(address)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=NAMESPACE), timeout=timedelta(seconds=seconds)
            )
    except (RuntimeError, RPCError, TimeoutError):  # the SDK raises RuntimeError when it can't connect
        return False
    return True


def _downloaded(folder: Path) -> str:
    """The binary that the SDK downloads, kept in `folder`; this starts and stops it once."""
    found = sorted(folder.glob("temporal*"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(RuntimeError, OSError, ProcessError):  # the folder shows whether it was downloaded
            _run_apart(_download(folder))
        found = sorted(folder.glob("temporal*"))
    if not found:
        raise ProgramMissing(f"the temporal binary is not installed and could not be downloaded; {INSTALL_ADVICE}")
    return str(found[0])


async def _download(folder: Path) -> None:
    from temporalio.testing import WorkflowEnvironment

    async with await WorkflowEnvironment.start_local(download_dest_dir=str(folder)):
        return
