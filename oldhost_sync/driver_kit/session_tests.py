"""The product's own session, recovery and ledger with a driver, on a model of its host. A class inherits the tests:

    class TestMySessions(SessionTests):
        driver = MyDriver()
        model = MyHost
        refused = b""

What the driver claims is compared with what the model does. Then the network loses, delays, cuts and garbles each
request or answer once, and the process is killed at each of its steps. Whatever happens, each operation is done once,
or the host is halted because nobody can know. That needs all three to be right: the driver, what it claims, and the
model.
"""

from __future__ import annotations

from typing import Any, ClassVar

from oldhost_sync.driver_kit.conversation import Conversation, following, is_applied, names_number
from oldhost_sync.driver_kit.mistake import Mistake, check
from oldhost_sync.driver_kit.virtual_host import NetworkFault
from oldhost_sync.driver_kit.virtual_session import Rested, VirtualRun
from oldhost_sync.drivers.ambiguity import Resends, plan
from oldhost_sync.drivers.capabilities import Capabilities, Expects, Repeats, Resets
from oldhost_sync.drivers.contract import LOCAL, Driver, Peer
from oldhost_sync.drivers.events import Applied, Rejected

# Operations, to see how the host counts. A model whose numbers wrap later begins shortly before.
STEPS = 1_010
STEPS_MAX = 70_000
LOG_ONS = 300


class SessionTests:
    """`model`: the class of a model of the host, a `VirtualHost`; one for each run. `refused`: a body that it refuses
    for its content; None: it refuses none. `peer`: whom it speaks to.
    """

    driver: ClassVar[Driver]
    model: ClassVar[type[Any]]
    refused: ClassVar[bytes | None]
    peer: ClassVar[Peer] = LOCAL

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One that takes a fault runs once for each."""
        if "fault" in metafunc.fixturenames:
            metafunc.parametrize("fault", self._faults(), ids=str)

    # ------------------------------------------------------------------------------- what is claimed, without any fault

    def test_numbers_go_on_as_claimed(self) -> None:
        """For more than one round, if they wrap; otherwise far beyond those of a byte, or of three digits."""
        can, talk = self.driver.capabilities, self._conversation()
        number, bodies = talk.first(), []
        for step in range(_steps(can)):
            bodies.append(_body(step))
            events = talk.send(number, bodies[-1])
            what = f"operation {step + 1}, with number {number}, is read as {events} ({talk.heard!r}), not as applied"
            check(is_applied(events), f"{what}. Do its numbers wrap, or begin elsewhere? Claim modulus and lowest")
            number = following(number, can)
            said = {event.expected for event in events if isinstance(event, Applied)} - {None}
            if step % 3 == 2 if can.resets is Resets.SESSION else step < LOG_ONS or step % 10 == 0:
                talk.log_on()
                number = can.lowest if can.resets is Resets.SESSION else number
                said.add(talk.expected())
            check(said <= {number}, f"after operation {step + 1} the model wants {said}, and not {number} as claimed")
        check(talk.model.done == bodies, "the model has not done each operation once, in their order")

    def test_a_number_that_comes_again_gets_what_is_claimed(self) -> None:
        claimed, talk = self.driver.capabilities.repeated, self._conversation()
        first = talk.first()
        number = following(first, self.driver.capabilities)
        talk.send(first, _body(0))
        talk.send(number, _body(1))
        found, events = talk.repeated(number, _body(1))
        # A model without a clock need not ban us.
        is_so = found is claimed or (found, claimed) == (Repeats.REFUSED, Repeats.PUNISHED)
        # All that is known of a host that says nothing.
        is_so = is_so or (claimed is Repeats.DONE_TWICE and found is None and not talk.heard)
        seen = f"seen: {found}" if found else f"it is not done again, and read as {events} ({talk.heard!r})"
        check(is_so, f"repeated: claimed: {claimed}; {seen}")

    def test_a_number_that_is_too_high_gets_what_is_claimed(self) -> None:
        can, talk = self.driver.capabilities, self._conversation()
        number = following(talk.first(), can, 3)
        events = talk.send(number, _body(0))
        is_done = bool(talk.model.done)
        check(is_done is not can.gapless, f"gapless={can.gapless} is claimed; number {number} gets {events}")

    def test_a_refused_operation_uses_its_number_as_claimed(self) -> None:
        check(hasattr(self, "refused"), "refused = a body that the model refuses for its content, or None: it has none")
        if self.refused is None:
            return
        can, talk = self.driver.capabilities, self._conversation()
        number = talk.first()
        events = talk.send(number, self.refused)
        told = next((event for event in events if isinstance(event, Rejected)), None)
        if told is None:
            raise Mistake(f"the model should refuse {self.refused!r}, and it is read as {events} ({talk.heard!r})")
        after = following(number, can) if told.consumed else number
        said = talk.expected() if can.expected is not Expects.NEVER else None
        events = talk.send(after, _body(0))
        why = f"consumed={told.consumed}: then {after} comes next, and the model wants {said}: read as {events}"
        check(said in (None, after) and is_applied(events), f"{told} says {why}")

    def test_an_answer_that_names_its_number_is_no_others(self) -> None:
        talk = self._conversation()
        number, answers = talk.first(), {}
        for step in range(4):
            talk.send(number, _body(step))
            answers[number] = talk.heard
            number = following(number, self.driver.capabilities)
        if not names_number(answers):
            return
        for answer in answers.values():
            read = talk.reads(number, _body(4), answer)
            check(not is_applied(read), f"{answer!r} names another number than {number}, and is read as {read}")

    # ----------------------------------------------------------------------------------------------- whatever happens

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

    def _conversation(self) -> Conversation:
        return Conversation(self.driver, self.peer, self.model())

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


def _steps(can: Capabilities) -> int:
    return min(STEPS_MAX, STEPS if can.modulus is None else can.modulus - can.lowest + 2)


def _body(step: int) -> bytes:
    """As those of a run (`virtual_session.py`)."""
    return b'{"idempotency_key":"k%d"}' % step
