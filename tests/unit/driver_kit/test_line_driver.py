"""The kit's tests pass for a driver that is right."""

from __future__ import annotations

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.sample import AskExpected, Greet, Operation, Sample
from oldhost_sync.drivers.events import Applied, Expected, Gap, Ready, Rejected, Replay, Unlisted, Working
from tests.unit.driver_kit.line_driver import LineDriver

BODY = b"4 eggs"
OPERATION = Operation(501, BODY, at_ms=7)
WRITTEN = b"DO 501 7 342065676773\n"


class TestLineDriver(DriverTests):
    check_sum = False
    driver = LineDriver()
    greeting = Sample("greeting", Greet(), b"HELLO \n", b"READY 501 boot7\n", (Ready(501, "boot7"),))
    samples = (
        Sample("applied", OPERATION, WRITTEN, b"DONE 501\n", (Applied(502),)),
        Sample("applied after a while", OPERATION, WRITTEN, b"WAIT\nDONE 501\n", (Working(), Applied(502))),
        Sample("rejected", OPERATION, WRITTEN, b"NO 501 no eggs\n", (Rejected("no eggs", consumed=True),)),
        Sample("gap", OPERATION, WRITTEN, b"NEXT 499\n", (Gap(499),)),
        Sample("replay", OPERATION, WRITTEN, b"OLD 505\n", (Replay(505, None),)),
        Sample("another's", OPERATION, WRITTEN, b"DONE 400\n", (Unlisted("another number is done"),)),
        Sample("expected", AskExpected(), b"NEXT?\n", b"NEXT 501\n", (Expected(501),)),
    )  # fmt: skip
