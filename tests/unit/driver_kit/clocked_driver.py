"""A driver that is not pure, which its own module does not show."""

from __future__ import annotations

from tests.unit.driver_kit.impurity import moment
from tests.unit.driver_kit.line_driver import LineDriver, LineWire


class ClockedWire(LineWire):
    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        return super().operation(number, body, moment())


class ClockedDriver(LineDriver):
    def __init__(self) -> None:
        super().__init__(kind=ClockedWire)
