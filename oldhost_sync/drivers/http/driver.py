"""The driver of hosts that are reached by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oldhost_sync.drivers.capabilities import OLDHOST, Capabilities
from oldhost_sync.drivers.contract import API, InvalidOptions, Peer
from oldhost_sync.drivers.http.wire import HttpWire


class HttpDriver:
    """See `Driver`."""

    api = API
    schemes = ("http", "https")
    capabilities: Capabilities = OLDHOST
    # The protocol's longest answer has some hundred bytes; a proxy's HTML error page still fits.
    answer_bytes_max = 64 * 1024

    def wire(self, peer: Peer) -> HttpWire:
        return HttpWire(peer)


HTTP = HttpDriver()


def make_driver(options: Mapping[str, Any]) -> HttpDriver:
    """See `DriverFactory`."""
    if options:
        raise InvalidOptions([((key,), "there is no such option") for key in options])
    return HTTP
