"""What an image holds, as a CycloneDX bill of materials: this Python, its packages, and Debian's packages.

The Dockerfile runs it with the image's own Python, so it reads what is there and not what was asked for. It needs
nothing but the standard library.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
        "Zlib",
    )
)
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


@dataclass(frozen=True)
class Part:
    """One thing that the image holds. `licence`: an SPDX expression, empty where it is not known."""

    kind: str
    name: str
    version: str
    purl: str
    licence: str = ""

    def entry(self) -> dict[str, Any]:
        """As CycloneDX has it."""
        found: dict[str, Any] = {
            "type": self.kind,
            "bom-ref": self.purl,
            "purl": self.purl,
            "name": self.name,
            "version": self.version,
        }
        return found | ({"licenses": [{"expression": self.licence}]} if self.licence else {})


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


def python_parts() -> Iterator[Part]:
    """The interpreter that runs this, and each package that it can import."""
    version = platform.python_version()
    yield Part("platform", "python", version, f"pkg:generic/python@{version}", "PSF-2.0")
    for each in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        if name != "oldhost-sync":
            purl = f"pkg:pypi/{name}@{quote(each.version)}"
            yield Part("library", name, each.version, purl, licence_of(each.metadata))


def debian_parts(root: Path = Path("/")) -> Iterator[Part]:
    """Each installed package of Debian; its licences are in /usr/share/doc of the image."""
    told = dict(re.findall(r'^(\w+)="?(.*?)"?$', (root / "etc/os-release").read_text(), re.MULTILINE))
    for paragraph in (root / "var/lib/dpkg/status").read_text(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            where = f"arch={fields['Architecture']}&distro={told['ID']}-{told['VERSION_ID']}"
            yield Part("library", name, version, f"pkg:deb/{told['ID']}/{quote(name)}@{quote(version)}?{where}")


def bill_of_materials(parts: Iterable[Part], version: str) -> dict[str, Any]:
    """CycloneDX 1.6. The same for the same image: it has no date and no serial number."""
    parts = sorted(set(parts), key=lambda part: part.purl)
    product = {"type": "application", "name": "oldhost-sync", "bom-ref": "oldhost-sync", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": product},
        "components": [part.entry() for part in parts],
    }


if __name__ == "__main__":
    found = [*python_parts(), *debian_parts()]
    json.dump(bill_of_materials(found, metadata.version("oldhost-sync")), sys.stdout, indent=2)
