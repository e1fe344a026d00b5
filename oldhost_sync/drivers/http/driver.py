"""The driver of hosts that are reached by HTTP: OldHost, and others as their options say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oldhost_sync.drivers.capabilities import OLDHOST, Capabilities
from oldhost_sync.drivers.contract import API, Peer
from oldhost_sync.drivers.http.options import read_options
from oldhost_sync.drivers.http.patterns import Patterns
from oldhost_sync.drivers.http.requests import OLDHOST as OLDHOSTS
from oldhost_sync.drivers.http.requests import Requests
from oldhost_sync.drivers.http.wire import HttpWire


class HttpDriver:
    """See `Driver`. `patterns`: of the answers; None: they are OldHost's."""

    api = API
    schemes = ("http", "https")
    # The protocol's longest answer has some hundred bytes; a proxy's HTML error page still fits.
    answer_bytes_max = 64 * 1024

    def __init__(
        self,
        requests: Requests = OLDHOSTS,
        patterns: Patterns | None = None,
        capabilities: Capabilities = OLDHOST,
    ) -> None:
        self._requests, self._patterns, self.capabilities = requests, patterns, capabilities

    def wire(self, peer: Peer) -> HttpWire:
        return HttpWire(peer, self._requests, self._patterns)


HTTP = HttpDriver()


def make_driver(options: Mapping[str, Any]) -> HttpDriver:
    """See `DriverFactory`."""
    return HttpDriver(*read_options(options)) if options else HTTP
