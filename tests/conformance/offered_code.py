"""A package with one entry point of `oldhost_sync.mappings`, as if somebody had installed it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from oldhost_sync.drivers import mapping_code


def offer(folder: Path, patch: pytest.MonkeyPatch, source: str, *, name: str = "invoice", package: str = "tax") -> None:
    """`source`: of a module with a function `encode`."""
    (folder / f"{package}_code.py").write_text(source)
    metadata = folder / f"{package}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[{mapping_code.GROUP}]\n{name} = {package}_code:encode\n")
    if str(folder) not in sys.path:
        patch.syspath_prepend(folder)
    patch.delitem(sys.modules, f"{package}_code", raising=False)
    forget()


def forget() -> None:
    """As a new process."""
    importlib.invalidate_caches()
    mapping_code.find.cache_clear()
    mapping_code._offered.cache_clear()
    mapping_code.missed.clear()
