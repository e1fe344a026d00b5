"""The parts put together: host, faults, state file, OldHost's port and the admin port, in two threads.

with Simulator(Config(latency_ms=5)) as simulator:
    ... simulator.url ... simulator.admin_url ...
"""

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeVar

from oldhost_simulator.admin import Admin, AdminServer, Controls
from oldhost_simulator.behaviour import OLDHOST, Behaviour
from oldhost_simulator.call_handler import CallHandler, Counters
from oldhost_simulator.dialects.dialect import Dialect
from oldhost_simulator.dialects.frame import FRAMES
from oldhost_simulator.dialects.http import HTTP
from oldhost_simulator.faults import Switchboard
from oldhost_simulator.host import Host
from oldhost_simulator.limits import ADMIN_ANSWER_SECONDS_MAX
from oldhost_simulator.loop import Clock, Loop
from oldhost_simulator.server import Pace, Server
from oldhost_simulator.state_file import StateFile
from oldhost_simulator.tls_front import TlsFront, server_context

T = TypeVar("T")
DIALECTS: Final[Mapping[str, Dialect]] = {"http": HTTP, "frame": FRAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The options. Port 0 takes a free port; `first_nonce` is used only if the state file is empty."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_port: int = 0
    latency_ms: float = 400.0
    jitter_ms: float = 0.0
    ban_seconds: float = 900.0
    state_file: Path | None = None
    seed: int = 0
    first_nonce: int = 1
    check_operations: bool = True
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    authorization_file: Path | None = None
    dialect: str = "http"
    behaviour: Behaviour = OLDHOST

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def url(self, port: int, scheme: str = "http") -> str:
        """The address of a port of ours."""
        return (
            f"{scheme}://[{self.host}]:{port}" if self.family is socket.AF_INET6 else f"{scheme}://{self.host}:{port}"
        )

    def __post_init__(self) -> None:
        for name in ("latency_ms", "jitter_ms", "ban_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number from 0 on, not {getattr(self, name)}")
        for name in ("port", "admin_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ValueError(f"{name} must be a port from 0 to 65535, not {getattr(self, name)}")
        if self.tls_cert is None and (self.tls_key or self.client_ca):
            raise ValueError("tls_key and client_ca need tls_cert")
        if self.first_nonce < self.behaviour.lowest:
            lowest = self.behaviour.lowest
            raise ValueError(f"first_nonce must be a whole number from {lowest} on, not {self.first_nonce}")
        if self.dialect not in DIALECTS:
            raise ValueError(f"dialect must be {' or '.join(DIALECTS)}, not {self.dialect}")


class Simulator:
    """Starts only once; for a restart create a new one with the same state file (and the same ports, if needed)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ended: SimpleQueue[None] = SimpleQueue()  # a signal handler puts into it, and can't take a lock
        self.port = 0
        self.admin_port = 0
        self._state_file: StateFile | None = None
        self._admin_server: AdminServer | None = None
        self._loop: Loop | None = None
        self._server: Server | None = None
        self._tls_front: TlsFront | None = None
        self._controls: Controls | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        plain, tls = DIALECTS[self.config.dialect].schemes
        return self.config.url(self.port, plain if self.config.tls_cert is None else tls)

    @property
    def admin_url(self) -> str:
        return self.config.url(self.admin_port)

    @property
    def crash(self) -> BaseException | None:
        """The exception that ended the host, if any."""
        return self._loop.crash if self._loop is not None else None

    def control(self, act: Callable[[Controls], T]) -> T:
        """Does what the admin port does, without HTTP: `simulator.control(Controls.stats)`."""
        assert self._loop is not None, "the simulator has not been started"
        assert self._controls is not None, "the simulator has not been started"
        controls = self._controls
        return self._loop.call(lambda: act(controls)).result(ADMIN_ANSWER_SECONDS_MAX)

    def start(self) -> None:
        """Both ports are open when it returns. Raises OSError (a port is taken) and StateFileError."""
        try:
            self._build()
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Ends like a kill: a request in process is not finished; all that was answered is in the state file."""
        if self._loop is not None and self._thread is not None:
            self._loop.stop()
            self._thread.join()
        self._close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _build(self) -> None:
        config = self.config
        clock = Clock()
        host = self._host(config)
        host.started(clock.now())
        loop = self._loop = Loop(clock)
        faults = Switchboard(config.seed)
        pace = Pace(latency_ms=config.latency_ms, jitter_ms=config.jitter_ms, seed=config.seed)
        counters = Counters(started_at=clock.now())
        call_handler = CallHandler(host, faults, counters, self._state_file)
        self._server = Server(
            loop,
            call_handler,
            faults,
            pace,
            counters,
            check_operations=config.check_operations,
            authorization=config.authorization_file.read_text().strip() if config.authorization_file else None,
            dialect=DIALECTS[config.dialect],
        )
        controls = self._controls = Controls(clock, call_handler, faults, pace, counters, self._server)
        admin = Admin(loop, call_handler, controls)
        self._admin_server = AdminServer(config.host, config.admin_port, config.family, admin)
        self.admin_port = self._admin_server.port
        if config.tls_cert is None:
            self.port = self._server.listen(config.host, config.port, config.family)
        else:
            context = server_context(config.tls_cert, config.tls_key, config.client_ca)
            plain = self._server.listen(config.host, 0, config.family)
            self._tls_front = TlsFront(context, config.host, config.port, config.family, plain)
            self.port = self._tls_front.port
        self._thread = threading.Thread(target=self._run, args=(loop, self._server), name="oldhost", daemon=True)
        self._thread.start()
        self._admin_server.start()

    def _host(self, config: Config) -> Host:
        """With what it did in earlier runs."""
        first_nonce = config.first_nonce
        if config.state_file is not None:
            self._state_file = StateFile(config.state_file, first_nonce=first_nonce)
            first_nonce = self._state_file.first_nonce
        host = Host(first_nonce=first_nonce, ban_seconds=config.ban_seconds, behaviour=config.behaviour)
        for fact in self._state_file.facts() if self._state_file is not None else ():
            host.apply(fact)
        return host

    def _run(self, loop: Loop, server: Server) -> None:
        try:
            loop.run()
        finally:
            server.close()  # also after a crash: a host that no longer answers must not take connections
            self.ended.put(None)

    def _close(self) -> None:
        if self._admin_server is not None:
            self._admin_server.stop()
        if self._tls_front is not None:
            self._tls_front.stop()
        if self._server is not None:
            self._server.close()
        if self._loop is not None and self._thread is None:
            self._loop.close()
        if self._state_file is not None:
            self._state_file.close()
        self._admin_server = self._server = self._state_file = None
