"""What the product is made of: every locked package with its version and licence, read from what is installed.

`make licences` prints it, and needs no network. What an image holds is written into it (deploy/bill_of_materials.py).
Whether a version has a known hole can't be learnt without one: run pip-audit on requirements.txt where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from deploy.bill_of_materials import ALLOWED, licence_of
from tests.architecture.project_files import ROOT

_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)( ; .+)? \\$", re.MULTILINE)
IMAGE_LOCK, DEVELOPMENT_LOCK = "requirements.txt", "requirements-dev.txt"

# Packages that say nothing in their metadata; read in their source.
_READ = {"axe-playwright-python": "MIT AND MPL-2.0", "huey": "MIT"}


@dataclass(frozen=True)
class Component:
    """A locked package. `licence`: an SPDX expression, empty where it is not known."""

    name: str
    version: str
    licence: str
    in_image: bool

    @property
    def is_allowed(self) -> bool:
        """One of the alternatives (OR) has only licences (AND) that are allowed."""
        return any(set(one.split(" AND ")) <= ALLOWED for one in self.licence.split(" OR "))


def locked(lock: str) -> Iterator[tuple[str, str, bool]]:
    """Name, version, and whether it is for every machine, of each package in a lock file."""
    for name, version, condition in _PIN.findall((ROOT / lock).read_text()):
        yield name, version, not condition


def components() -> list[Component]:
    """Raises PackageNotFoundError for a package that is locked and not installed."""
    image = {name for name, _version, _always in locked(IMAGE_LOCK)}
    found = []
    for name, version, always in locked(DEVELOPMENT_LOCK):
        try:
            told = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            if always:
                raise
            continue
        found.append(Component(name, version, _READ.get(name) or licence_of(told), name in image))
    return found


def main() -> None:
    for each in sorted(components(), key=lambda each: (not each.in_image, each.name)):
        print(f"{'image' if each.in_image else 'tools':6}{each.name:42}{each.version:14}{each.licence or 'UNKNOWN'}")


if __name__ == "__main__":
    main()
