"""What a driver must not do, in a module behind its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def moment() -> int:
    with open("/etc/hostname", "rb") as file:  # noqa: PTH123 - the kit looks for it
        return round(time.time() + datetime.now(UTC).timestamp()) + len(file.read())
