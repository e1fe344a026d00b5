"""The driver, by the kit. The bytes are the manual's."""

from fiscal_device.driver import FiscalDriver

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.sample import Greet, Operation, Sample
from oldhost_sync.drivers.events import Applied, Malformed, NoService, Ready, Rejected, Unlisted, Working

LOG_ON = b"\x01\x20\x20I\x05008E\x03"
ASKED, PRINT = Operation(0x21, b"2 eggs"), b"\x01\x26\x21P2 eggs\x050294\x03"
DONE = b"\x01\x21\x21PA\x0500D8\x03"


class TestFiscalDevice(DriverTests):
    driver = FiscalDriver()
    check_sum = True
    greeting = Sample("log on", Greet(), LOG_ON, b"\x01\x29\x20IR21,boot7\x050363\x03", (Ready(0x21, "boot7"),))
    samples = (
        Sample("done", ASKED, PRINT, DONE, (Applied(None),)),
        Sample("done after a while", ASKED, PRINT, b"\x16\x16" + DONE, (Working(), Working(), Applied(None))),
        Sample("refused", ASKED, PRINT, b"\x01\x29\x21PEno paper\x0503F9\x03", (Rejected("no paper", consumed=True),)),
        Sample(
            "the highest",
            Operation(0x7F, b""),
            b"\x01\x20\x7fP\x0500F4\x03",
            b"\x01\x21\x7fPA\x050136\x03",
            (Applied(None),),
        ),
        Sample("not read", ASKED, PRINT, b"\x15", (Malformed("the device can't read the frame"),)),
        Sample(
            "not in the manual",
            ASKED,
            PRINT,
            b"\x01\x22\x21PW?\x05012E\x03",
            (Unlisted("neither done nor refused"),),
        ),
        Sample(
            "log-on not read",
            Greet(),
            LOG_ON,
            b"\x15",
            (NoService("unreadable", "the device can't read the frame"),),
        ),
        Sample(
            "log-on's number beyond the highest",
            Greet(),
            LOG_ON,
            b"\x01\x29\x20IR80,boot7\x050368\x03",
            (NoService("unreadable", "no answer to a log-on"),),
        ),
    )
