"""A secret as Kubernetes mounts it: each file is a link through the link `..data`, which alone is replaced, at once."""

from __future__ import annotations

from pathlib import Path


class MountedSecret:
    """`folder`: where it is mounted; `files`: the secret's keys with their values."""

    def __init__(self, folder: Path, **files: str) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir()
        self.replace(**files)
        for name in files:
            (folder / name).symlink_to(Path("..data", name))

    def __getitem__(self, name: str) -> Path:
        """The path of the file that a role is told."""
        return self._folder / name

    def replace(self, **files: str) -> None:
        """Write a new version, and let the links lead to it, as the kubelet does."""
        self._count += 1
        version = self._folder / f"..version_{self._count}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_text(content)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self._folder / "..data")
