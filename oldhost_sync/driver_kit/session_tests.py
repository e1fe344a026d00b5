"""The product's own session, recovery and ledger with a driver, on a model of its host. A class inherits the tests:

    class TestMySessions(SessionTests):
        driver = MyDriver()
        model = MyHost

The network loses, delays, cuts and garbles each request or answer once, and the process is killed at each of its steps.
Whatever happens, each operation is done once, or the host is halted because nobody can know. That needs all three to be
right: the driver, what it claims, and the model.
"""

from __future__ import annotations

from typing import Any, ClassVar

from oldhost_sync.driver_kit.mistake import check
from oldhost_sync.driver_kit.virtual_host import NetworkFault
from oldhost_sync.driver_kit.virtual_session import Rested, VirtualRun
from oldhost_sync.drivers.ambiguity import Resends, plan
from oldhost_sync.drivers.contract import LOCAL, Driver, Peer


class SessionTests:
    """`model`: the class of a model of the host, a `VirtualHost`; one for each run. `peer`: whom it speaks to."""

    driver: ClassVar[Driver]
    model: ClassVar[type[Any]]
    peer: ClassVar[Peer] = LOCAL

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One that takes a fault runs once for each."""
        if "fault" in metafunc.fixturenames:
            metafunc.parametrize("fault", self._faults(), ids=str)

    def test_each_operation_is_done_once(self) -> None:
        rested = self._rested()
        check(not rested.halted, f"without any fault it is halted: {rested.halted}")
        self._check_rested(rested, "without any fault")
        check(not rested.unproven, f"without any fault {rested.unproven} of the answers do not prove what they should")

    def test_each_operation_is_done_once_whatever_the_network_does(self, fault: NetworkFault) -> None:
        for faulty in range(1, self._rested().requests + 1):
            self._check_rested(self._rested(fault, faulty), f"request {faulty}: {fault}")

    def test_each_operation_is_done_once_wherever_the_process_is_killed(self) -> None:
        for step in range(1, self._rested().steps + 1):
            self._check_rested(self._rested(kill_at=step), f"killed at step {step}")

    def _faults(self) -> list[NetworkFault]:
        """What the network may do to this host. One that repeats its last answer works on one thing at a time: it
        does nothing late, after it has answered something else.
        """
        is_late = plan(self.driver.capabilities).resends is not Resends.LAST
        return [fault for fault in NetworkFault if fault is not NetworkFault.DONE_LATE or is_late]

    def _rested(self, fault: NetworkFault = NetworkFault.NONE, faulty: int = 0, kill_at: int = 0) -> Rested:
        return VirtualRun(self.driver, self.peer, self.model(), fault, faulty).rest(kill_at)

    def _check_rested(self, rested: Rested, when: str) -> None:
        twice = [body for body in rested.bodies if rested.done.count(body) > 1]
        check(not twice, f"{when}: {twice} is done twice")
        if rested.halted:
            row = plan(self.driver.capabilities)
            # One that repeats its last answer can't tell of the one before, if both were lost.
            may_be_unknown = not row.asks and row.resends is not Resends.ANY
            check(may_be_unknown, f"{when}: the host is halted, though its claims tell what to do: {rested.halted}")
            check("took change" in rested.halted, f"{when}: the halt names no operation: {rested.halted}")
            return
        lost = [body for body in rested.bodies if body not in rested.done]
        check(not lost, f"{when}: {lost} is not done, and the outcomes are {rested.outcomes}")
        check({*rested.outcomes} == {"APPLIED"}, f"{when}: all is done, and the outcomes are {rested.outcomes}")
