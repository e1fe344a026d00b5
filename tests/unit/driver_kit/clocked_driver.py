"""A driver that is not pure."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tests.unit.driver_kit.line_driver import LineDriver, LineWire


class ClockedWire(LineWire):
    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        return super().operation(number, body, round(time.time() + datetime.now(UTC).timestamp()))

    def bye(self) -> bytes:
        with open("/dev/null", "rb") as file:  # noqa: PTH123 - the kit looks for it
            return file.read()


class ClockedDriver(LineDriver):
    def __init__(self) -> None:
        super().__init__(kind=ClockedWire)
