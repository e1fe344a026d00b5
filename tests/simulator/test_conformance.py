"""The simulator keeps the protocol (or another make does: see `conftest.py`)."""

from tests.simulator.conformance import NonceRules, WireRules


class TestNonceRules(NonceRules):
    pass


class TestWireRules(WireRules):
    pass
