"""The files of the project, as version control knows them (or as they lie there, where it is not at hand)."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = {".git", ".venv", "build", "dist", "var", "__pycache__"}


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is or would be committed, sorted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    paths = (ROOT / name for name in sorted(names) if not _NOT_OURS.intersection(Path(name).parts))
    return tuple(path for path in paths if path.is_file())


def python_files() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".py"]


def text_of(path: Path) -> str | None:
    """The file as text; None for what is none (pictures, recorded histories)."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return None
