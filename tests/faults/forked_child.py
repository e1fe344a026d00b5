"""Roles started by fork from a server that has imported the product: starting one takes a tenth of the CPU.

A hundred roles that import it anew are a fifth of all that the tests compute. What runs is the role's own program in a
process of its own; only its imports, and the seed of its hashes, are those of the server. The soaks and the tests of
two releases start programs as they are deployed.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import IO

from oldhost_sync.stack.processes import Child, die_with

PRELOADED = (
    "oldhost_simulator.process",
    "oldhost_sync.cli.main",
    "oldhost_sync.roles.api",
    "oldhost_sync.roles.relay",
    "oldhost_sync.roles.worker",
)


class ForkedChild(Child):
    """`argv`: [the interpreter, "-m", a module, its arguments …]."""

    def launch(self, log: IO[bytes]) -> ForkedProcess:
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(list(PRELOADED))
        return ForkedProcess(server, self.argv[2], self.argv[3:], self.env, self.folder or Path.cwd(), log)


class ForkedProcess:
    """As `subprocess.Popen` for a module, in a process group of its own."""

    def __init__(
        self,
        server: ForkServerContext,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path,
        log: IO[bytes],
    ) -> None:
        begun, begins = server.Pipe(duplex=False)
        given = dict(os.environ if environment is None else environment)
        self._process: ForkServerProcess = server.Process(
            target=_run, args=(module, list(arguments), given, str(folder), log.name, begins)
        )
        self._process.start()
        begins.close()
        begun.poll(None)  # from then on it has its group, which signals are sent to; or it has died
        begun.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def _run(
    module: str, arguments: list[str], environment: dict[str, str], folder: str, log: str, begins: Connection
) -> None:
    """In the new process: become what `python -m module arguments` would be."""
    os.setsid()
    die_with(os.getppid())()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also in tests that were started with `nohup`
    begins.close()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
