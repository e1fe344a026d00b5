"""Which driver speaks to a host: one of ours, or one that an installed package offers.

A package offers a driver as an entry point of the group `oldhost_sync.drivers`: a function that takes the host's
options and gives the driver (`DriverFactory`). Drivers are loaded here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from typing import Any

from oldhost_sync.drivers.capabilities import not_carried
from oldhost_sync.drivers.contract import API, Driver, DriverFactory

GROUP = "oldhost_sync.drivers"
HTTP = "http"
_OURS = {
    HTTP: "oldhost_sync.drivers.http.driver:make_driver",
    "frame": "oldhost_sync.drivers.frame.driver:make_driver",
}


def driver_named(name: str, options: Mapping[str, Any]) -> Driver:
    """The driver with these options. Raises InvalidOptions, and ValueError where there is no such driver, or one that
    can't be used.
    """
    driver = _factory(name)(options)
    if driver.api != API:
        raise ValueError(f"driver {name} is made for version {driver.api} of the drivers' contract, and this is {API}")
    if why := not_carried(driver.capabilities):
        raise ValueError(f"driver {name} can't be used: {why}")
    return driver


@cache
def _factory(name: str) -> DriverFactory:
    if name in _OURS:
        module, _, function = _OURS[name].partition(":")
        factory: DriverFactory = getattr(import_module(module), function)
        return factory
    found = metadata.entry_points(group=GROUP)
    if name not in found.names:
        raise ValueError(f"there is no driver {name}: there are {', '.join(sorted({*_OURS, *found.names}))}")
    try:
        return found[name].load()  # type: ignore[no-any-return]
    except Exception as error:
        raise ValueError(f"driver {name} can't be loaded: {type(error).__name__}: {error}") from error
