"""The kit's tests of sessions, on hosts of each kind."""

from __future__ import annotations

from oldhost_simulator.dialects.http import HTTP as OLDHOST_HTTP
from oldhost_sync.driver_kit.session_tests import SessionTests
from oldhost_sync.drivers.ambiguity import plan
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.frame.driver import FrameDriver
from oldhost_sync.drivers.http.driver import HTTP
from tests.unit.driver_kit.line_driver import LineDriver
from tests.unit.driver_kit.line_host import LineHost
from tests.unit.driver_kit.simulated_host import REFUSED, SimulatedHost, model


class OldHostModel(SimulatedHost):
    dialect = OLDHOST_HTTP


class TestHttp(SessionTests):
    refused = REFUSED
    driver, model = HTTP, OldHostModel


class TestLines(SessionTests):
    refused = None
    driver, model = LineDriver(), LineHost


class TestProvesApplied(SessionTests):
    refused = REFUSED
    driver = FrameDriver(
        Capabilities(expected=Expects.APPLIED, repeated=Repeats.PUNISHED, rejection_uses=RejectionUses.NO)
    )
    model = model(expected="applied", rejection_uses="no")


class TestProvesUsed(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED))
    model = model()


class TestProvesUsedAndTellsOutcomes(SessionTests):
    refused = REFUSED
    driver = FrameDriver(
        Capabilities(expected=Expects.USED, outcome=AskedOutcomes.BY_NUMBER, repeated=Repeats.PUNISHED)
    )
    model = model(outcome="by_number")


class TestTellsOutcomesByNumber(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(outcome=AskedOutcomes.BY_NUMBER, repeated=Repeats.PUNISHED))
    model = model(expected="never", outcome="by_number")


class TestTellsOutcomesByKey(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(outcome=AskedOutcomes.BY_ID, repeated=Repeats.PUNISHED))
    model = model(expected="never", outcome="by_id")


class TestTellsTheLastOutcome(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(outcome=AskedOutcomes.LAST, repeated=Repeats.PUNISHED))
    model = model(0, expected="never", outcome="last")


class TestRepeatsItsLastAnswer(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(repeated=Repeats.LAST_ANSWER))
    model = model(expected="never", repeated="last_answer")


class TestRefusesAUsedNumber(SessionTests):
    refused = REFUSED
    driver = FrameDriver(Capabilities(repeated=Repeats.REFUSED))
    model = model(expected="never", repeated="refused")


class TestTellsNothing(SessionTests):
    refused = REFUSED
    driver = FrameDriver()
    model = model(expected="never", repeated="done_twice")


KINDS = [each for name, each in list(globals().items()) if name.startswith("Test")]


def test_each_row_of_the_table_has_a_host() -> None:
    assert len({plan(kind.driver.capabilities) for kind in KINDS}) == 8


def test_a_process_is_killed_at_its_step_and_its_successor_ends_what_it_left() -> None:
    rested = TestHttp()._rested(kill_at=10)
    assert (rested.steps, rested.outcomes) == (10, ("APPLIED",) * 3)
