"""Each planted mistake in a driver is caught by the test that is meant for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.mistake import Mistake
from oldhost_sync.driver_kit.sample import Sample
from oldhost_sync.driver_kit.session_tests import SessionTests
from oldhost_sync.driver_kit.virtual_host import NetworkFault
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, Repeats
from oldhost_sync.drivers.contract import Driver, Peer
from oldhost_sync.drivers.events import Applied, Event, Expected, Gap, Malformed, Rejected, Unlisted
from oldhost_sync.drivers.frame.driver import FrameDriver
from tests.unit.driver_kit import clocked_driver
from tests.unit.driver_kit.line_driver import CAPABILITIES, LineDriver, LineWire
from tests.unit.driver_kit.line_host import LineHost
from tests.unit.driver_kit.simulated_host import model
from tests.unit.driver_kit.test_line_driver import TestLineDriver as Right


class Misspells(LineWire):
    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        return super().operation(number, body, at_ms).replace(b"DO", b"D0")


class CountsItsRequests(LineWire):
    count = 0

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        type(self).count += 1
        return super().operation(number, body, self.count)


class SharesItsBuffer(LineWire):
    kept = b""

    def feed(self, data: bytes) -> list[Event]:
        self._kept = SharesItsBuffer.kept
        events = super().feed(data)
        SharesItsBuffer.kept = self._kept
        return events


class TakesAPieceForALine(LineWire):
    def feed(self, data: bytes) -> list[Event]:
        return [self.read(line) for line in data.split(b"\n") if line]


class TakesTheEndForALine(LineWire):
    def end(self) -> list[Event]:
        return [self.read(self._kept)]


class TakesTheEndForARejection(LineWire):
    def end(self) -> list[Event]:
        return [Rejected("cut", consumed=True)] if self._kept.startswith(b"NO") else super().end()


class TakesAnyNumber(LineWire):
    def applied(self, number: int) -> Event:
        return Applied(number + 1)


class TakesACountForAnApply(LineWire):
    def next_is(self, number: str) -> Event:
        told = super().next_is(number)
        return Applied(told.expected) if isinstance(told, Gap) and told.expected == 501 else told


class RaisesWhatItLikes(LineWire):
    def read(self, line: bytes) -> Event:
        line.decode("ascii")
        return super().read(line)


class TellsNumbersBeyondTheLedger(LineWire):
    def next_is(self, number: str) -> Event:
        return Gap(int(number)) if self._number is not None else Expected(int(number))


class RepeatsTheHostsWords(LineWire):
    def read(self, line: bytes) -> Event:
        if not re.match(rb"READY|WAIT|DONE|NO|NEXT|OLD", line):
            return Unlisted(f"the host says {line.decode('ascii', 'replace')}")
        return super().read(line)


class ShowsItsPeer(LineWire):
    def __repr__(self) -> str:
        return f"LineWire({self._peer.authorization})"


class AnswersWhatWasNotAsked(LineWire):
    def read(self, line: bytes) -> Event:
        event = super().read(line)
        return Malformed("no") if isinstance(event, Expected) else event


class AsksForNothing(LineWire):
    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        return b""


class KeepsTheRejection(LineWire):
    last: Event | None = None

    def read(self, line: bytes) -> Event:
        event = super().read(line)
        if isinstance(event, Rejected):
            self.last = event
        return self.last if self.last is not None and isinstance(event, Applied) else event


class CountsOneTooFew(LineWire):
    """As its samples would show it, if they were made by it."""

    def next_is(self, number: str) -> Event:
        return super().next_is(str(int(number) - 1))


class IsUnsureOfWhatIsDone(LineWire):
    def applied(self, number: int) -> Event:
        return Unlisted("done, perhaps")


WIRES = {
    Misspells: "test_golden_bytes_and_events",
    CountsItsRequests: "test_the_same_calls_give_the_same_bytes_and_events",
    KeepsTheRejection: "test_the_same_calls_give_the_same_bytes_and_events",
    SharesItsBuffer: "test_two_wires_share_nothing",
    TakesAPieceForALine: "test_any_split_gives_the_same_events",
    TakesTheEndForALine: "test_a_prefix_and_the_end_are_never_definite",
    TakesTheEndForARejection: "test_a_prefix_and_the_end_are_never_definite",
    TakesAnyNumber: "test_another_numbers_answer_is_never_ours",
    TakesACountForAnApply: "test_an_answer_to_something_else_is_never_ours",
    RaisesWhatItLikes: "test_nothing_but_garbled_is_raised",
    TellsNumbersBeyondTheLedger: "test_numbers_out_of_range_are_never_told",
    RepeatsTheHostsWords: "test_no_word_of_the_host_is_in_a_sentence",
    ShowsItsPeer: "test_no_secret_is_shown",
    AnswersWhatWasNotAsked: "test_nothing_but_garbled_is_raised",
    AsksForNothing: "test_an_undeclared_question_is_not_made",
}


class Metafunc:
    """As much of pytest's as is used: `rows` has the arguments of each run of a test."""

    def __init__(self, test: Any) -> None:
        self.fixturenames = list(inspect.signature(test).parameters)
        self.rows: list[tuple[Sample, ...]] = [()]

    def parametrize(self, _name: str, samples: Sequence[Sample], ids: list[str]) -> None:
        self.rows = [(sample,) for sample in samples]


def run(driver: LineDriver, test: str, samples: tuple[Sample, ...] = Right.samples) -> None:
    """Run one test of the kit as pytest does."""
    kit: DriverTests = type("Kit", (Right,), {"driver": driver, "samples": samples})()
    metafunc = Metafunc(getattr(kit, test))
    kit.pytest_generate_tests(metafunc)
    for row in metafunc.rows:
        getattr(kit, test)(*row)


@pytest.mark.parametrize(("wire", "test"), WIRES.items(), ids=[wire.__name__ for wire in WIRES])
def test_a_mistaken_wire_is_caught(wire: type[LineWire], test: str) -> None:
    run(LineDriver(), test)
    with pytest.raises(Mistake):
        run(LineDriver(kind=wire), test)


@pytest.mark.parametrize(
    ("driver", "test"),
    [
        (LineDriver(api=2), "test_the_driver_is_of_this_contract"),
        (LineDriver(schemes=("gopher",)), "test_the_driver_is_of_this_contract"),
        (LineDriver(answer_bytes_max=8), "test_the_driver_is_of_this_contract"),
        (LineDriver(capabilities=replace(CAPABILITIES, modulus=4)), "test_the_driver_is_of_this_contract"),
        (
            LineDriver(capabilities=replace(CAPABILITIES, expected=Expects.NEVER)),
            "test_a_sample_fits_its_request_and_what_is_declared",
        ),
        (
            LineDriver(capabilities=replace(CAPABILITIES, repeated=Repeats.DONE_TWICE)),
            "test_a_sample_fits_its_request_and_what_is_declared",
        ),
        (LineDriver(capabilities=Capabilities()), "test_an_undeclared_question_is_not_made"),
        (clocked_driver.ClockedDriver(), "test_the_source_is_pure"),
    ],
)
def test_a_mistaken_driver_is_caught(driver: LineDriver, test: str) -> None:
    with pytest.raises(Mistake):
        run(driver, test)


def run_sessions(driver: Driver, host: type[Any]) -> None:
    """All tests of sessions."""
    sessions: SessionTests = type("Sessions", (SessionTests,), {"driver": driver, "model": host})()
    sessions.test_each_operation_is_done_once()
    sessions.test_each_operation_is_done_once_wherever_the_process_is_killed()
    for fault in NetworkFault:
        sessions.test_each_operation_is_done_once_whatever_the_network_does(fault)


@pytest.mark.parametrize("wire", [CountsOneTooFew, IsUnsureOfWhatIsDone])
def test_a_wire_whose_samples_share_its_mistake_is_caught_by_sessions(wire: type[LineWire]) -> None:
    with pytest.raises(Mistake):
        run_sessions(LineDriver(kind=wire), LineHost)


@pytest.mark.parametrize(
    ("claims", "what"),
    [
        (Capabilities(repeated=Repeats.REFUSED), "done twice"),
        (Capabilities(repeated=Repeats.LAST_ANSWER), "done twice"),
        (Capabilities(expected=Expects.USED), "halted"),
        (Capabilities(outcome=AskedOutcomes.BY_NUMBER), "halted"),
    ],
)
def test_a_claim_that_the_host_does_not_keep_is_caught_by_sessions(claims: Capabilities, what: str) -> None:
    """The host does each number that comes, tells nothing, and its log-on says which is next."""
    with pytest.raises(Mistake, match=what):
        run_sessions(FrameDriver(claims), model(expected="never", repeated="done_twice"))


def test_a_claim_without_a_sample_is_named() -> None:
    without = tuple(sample for sample in Right.samples if sample.name != "gap")
    with pytest.raises(Mistake, match=r"add a sample whose events have: Gap$"):
        run(LineDriver(), "test_each_claim_has_a_sample", without)


def test_what_is_impure_is_named_with_its_line() -> None:
    with pytest.raises(Mistake, match=r"impurity\.py, line \d+: imports time; .* calls open; .* calls now"):
        run(clocked_driver.ClockedDriver(), "test_the_source_is_pure")


def test_a_peers_secret_is_in_no_representation() -> None:
    assert "hidden" not in repr(Peer(authorization="hidden"))
