"""Styles, script and icon: from the package. Addresses contain a digest, so browsers may cache them for ever."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Asset:
    """One file; `address` changes with its content."""

    address: str
    media_type: str
    content: bytes


def read_assets(prefix: str) -> dict[str, Asset]:
    """All files of `static` by name; their addresses begin with `prefix`."""
    found: dict[str, Asset] = {}
    for file in resources.files("oldhost_sync.console").joinpath("static").iterdir():
        suffix = f".{file.name.rpartition('.')[2]}"
        if suffix in MEDIA_TYPES:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH]
            found[file.name] = Asset(f"{prefix}/{digest}/{file.name}", MEDIA_TYPES[suffix], content)
    return found
