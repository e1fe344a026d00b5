"""Roles forked from a process that has loaded the product: each starts with a tenth of the CPU of a new interpreter.

What runs is the role's own program, in a process of its own; only its modules, and the seed of its hashes, are those of
the loader. On other systems than Linux a role is an interpreter of its own, as in a deployment.
"""
# ruff: noqa: SLF001 - nothing public of the standard library's fork server ends it, or tells a fork of its pipe

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO, Any

from oldhost_sync.stack.processes import Child, StartedProcess, die_with

LOADED = (
    "oldhost_sync.roles.starter",
    "oldhost_sync.roles.relay",
    "oldhost_sync.roles.worker",
    "oldhost_sync.roles.api",
    "oldhost_sync.cli.main",
    "oldhost_sync.cli.roles",
    "oldhost_simulator.process",
)
CAN_FORK = sys.platform == "linux"


def begin_loading() -> None:
    """Start the loader, if it does not run yet. Call it in the main thread, as early as possible.

    A package in the current folder can't take the place of one of ours. A terminal that is closed ends the loader only
    with us, so that the roles are stopped in order.
    """
    if not CAN_FORK:
        return
    given, handler = os.environ.get("PYTHONSAFEPATH"), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        forkserver.set_forkserver_preload(list(LOADED))
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGHUP, handler)
        os.environ.pop("PYTHONSAFEPATH")
        if given is not None:
            os.environ["PYTHONSAFEPATH"] = given


def end_loading() -> None:
    """End the loader, and with it every role that it started: no process of ours is left behind."""
    loader, tracker = _server()
    if loader._forkserver_pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(loader._forkserver_pid, signal.SIGKILL)  # it may still be loading
        loader._stop()
        tracker._stop()


def _server() -> tuple[Any, Any]:
    """The standard library's fork server and its helper."""
    return forkserver._forkserver, resource_tracker._resource_tracker


class ForkedChild(Child):
    """`argv`: [the interpreter, …, "-m", a module, its arguments …]."""

    def launch(self, log: IO[bytes]) -> StartedProcess:
        if not CAN_FORK:
            return super().launch(log)
        begin_loading()
        module, *arguments = self.argv[list(self.argv).index("-m") + 1 :]
        return ForkedProcess(module, arguments, self.env, self.folder or Path.cwd(), log)


class ForkedProcess:
    """As `subprocess.Popen` for a module, in a process group of its own."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path,
        log: IO[bytes],
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        begun, begins = context.Pipe(duplex=False)
        given = dict(os.environ if environment is None else environment)
        self._process: ForkServerProcess = context.Process(
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
    # The loader ends when no process holds this descriptor any more; then the kernel ends this role.
    os.close(_server()[0]._forkserver_alive_fd)
    die_with(os.getppid())()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    begins.close()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
