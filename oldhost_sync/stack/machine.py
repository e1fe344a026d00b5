"""What this machine must give for the local product: installed programs, and free ports."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import sys
import sysconfig

# Servers' own folders, which are not on the PATH of an ordinary Debian user.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
# Below the ports of outgoing connections (on Linux from 32768, by default): any connection could take one of those
# between the choice here and the server's start, seconds later.
PORTS = range(10_000, 32_768)
ATTEMPTS = 100


class StackError(Exception):
    """What keeps the local product from running. The user of `up` or `demo` can mend it: the text says how."""


class ProgramMissing(StackError):  # noqa: N818 - it says what happened
    """A program must be installed first; the message says how."""


def find_program(*names: str) -> str | None:
    """Full path of the first of `names` that is installed, or None.

    First it looks beside our Python, as a venv need not be activated, then on the PATH.
    """
    folders = (sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep), *_SERVER_FOLDERS)
    path = os.pathsep.join(folder for folder in folders if folder)
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def module(name: str, *arguments: str) -> list[str]:
    """Command line of our module. `-P`: a package of the same name in the current folder can't replace it."""
    return [sys.executable, "-P", "-m", name, *arguments]


def need_program(*names: str, install: str) -> str:
    """As `find_program`; ProgramMissing with `install` as advice when there is none."""
    found = find_program(*names)
    if found is None:
        raise ProgramMissing(f"{names[0]} is not installed; {install}")
    return found


class PortTaken(StackError):  # noqa: N818 - it says what happened
    """Another program listens there. The operator stops it, or chooses another port."""

    def __init__(self, address: str, port: int, purpose: str) -> None:
        super().__init__(f"port {port} on {address} is taken, but is needed for {purpose}")
        self.port = port


def free_port(address: str = "127.0.0.1") -> int:
    """A port that is free at this moment; another program may still take it first."""
    for port in random.sample(PORTS, ATTEMPTS):
        with socket.socket(_family(address)) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise PortTaken(address, 0, f"anything ({ATTEMPTS} were tried)")


def pick_port(port: int | None, purpose: str, address: str = "127.0.0.1") -> int:
    """`port`, or any free one for None or 0. Raises PortTaken when `port` is not free."""
    if not port:
        return free_port(address)
    with socket.socket(_family(address)) as probe:
        # As the servers do: without this option a port with connections in TIME_WAIT would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                raise PortTaken(address, port, purpose) from None
            raise
    return port


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
