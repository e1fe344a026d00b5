"""What the product is made of: every locked package with its version and licence, read from what is installed.

`make licences` prints it; `make sbom` prints the image's part as a CycloneDX bill of materials. Both need no network.
Whether a version has a known hole can't be learnt without one: run pip-audit on requirements.txt where there is one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tests.architecture.project_files import ROOT

_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)( ; .+)? \\$", re.MULTILINE)
IMAGE_LOCK, DEVELOPMENT_LOCK = "requirements.txt", "requirements-dev.txt"

# Licences (SPDX) that ask for no more than a notice; and MPL-2.0, which asks that files of theirs be published when
# they are changed: none is.
ALLOWED = frozenset(
    (
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
    )
) | {"Zlib"}
# What packages say that do not give an SPDX expression: their field `License`, or a classifier.
_SAID = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
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


def licence_of(told: Any) -> str:
    """The SPDX expression in a package's metadata, empty when it says nothing that is known."""
    if expression := told.get("License-Expression"):
        return str(expression)
    classifiers = [
        each.rsplit(" :: ", 1)[-1] for each in told.get_all("Classifier", []) if each.startswith("License ::")
    ]
    said = [(told.get("License") or "").strip(), *classifiers]
    known = [_SAID.get(each, each) for each in said if each in _SAID or each in ALLOWED]
    return known[0] if known else ""


def bill_of_materials(of: Iterable[Component]) -> dict[str, Any]:
    """CycloneDX 1.6. The same for the same lock: it has no date and no serial number."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "oldhost-sync", "bom-ref": "oldhost-sync"}},
        "components": [
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{each.name}@{each.version}",
                "purl": f"pkg:pypi/{each.name}@{each.version}",
                "name": each.name,
                "version": each.version,
                "licenses": [{"expression": each.licence}],
            }
            for each in of
        ],
    }


def main(arguments: list[str]) -> None:
    found = components()
    if "--sbom" in arguments:
        print(json.dumps(bill_of_materials(each for each in found if each.in_image), indent=2))
        return
    for each in sorted(found, key=lambda each: (not each.in_image, each.name)):
        print(f"{'image' if each.in_image else 'tools':6}{each.name:42}{each.version:14}{each.licence or 'UNKNOWN'}")


if __name__ == "__main__":
    main(sys.argv[1:])
