"""The product's own session with the driver, on a model of the device."""

from fiscal_device.driver import FiscalDriver
from model import Device

from oldhost_sync.driver_kit.session_tests import SessionTests


class TestSessions(SessionTests):
    driver = FiscalDriver()
    model = Device
    refused = b""
