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
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats, Resets
from oldhost_sync.drivers.contract import Driver, Garbled, Peer
from oldhost_sync.drivers.events import Applied, Event, Expected, Gap, Malformed, Rejected, Said, Unlisted
from oldhost_sync.drivers.frame.driver import FrameDriver
from tests.unit.driver_kit import clocked_driver
from tests.unit.driver_kit.line_driver import CAPABILITIES, LineDriver, LineWire
from tests.unit.driver_kit.line_host import LineHost
from tests.unit.driver_kit.simulated_host import REFUSED, model
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


class NeverKeepsTheWords(LineWire):
    def in_its_words(self, line: bytes) -> Said | None:
        return None


class KeepsWhatCanNotBePrinted(LineWire):
    def in_its_words(self, line: bytes) -> Said | None:
        return Said("answer", f"\x1b[2J{line!r}")


class WritesNumbersInFourDigits(LineWire):
    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        super().operation(number, body, at_ms)
        return b"DO %d %d %s\n" % (number % 10_000, at_ms, body.hex().encode())


class WritesNumbersInTwoBytes(LineWire):
    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        number.to_bytes(2, "big")
        return super().operation(number, body, at_ms)


WIRES = {
    NeverKeepsTheWords: "test_an_answer_without_a_meaning_is_kept_in_the_hosts_words",
    KeepsWhatCanNotBePrinted: "test_an_answer_without_a_meaning_is_kept_in_the_hosts_words",
    WritesNumbersInFourDigits: "test_each_number_has_bytes_of_its_own",
    WritesNumbersInTwoBytes: "test_each_number_has_bytes_of_its_own",
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


def run(driver: LineDriver, test: str, samples: tuple[Sample, ...] = Right.samples, **own: Any) -> None:
    """Run one test of the kit as pytest does."""
    kit: DriverTests = type("Kit", (Right,), {"driver": driver, "samples": samples, **own})()
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


def sessions(driver: Driver, host: type[Any]) -> SessionTests:
    made: SessionTests = type("Sessions", (SessionTests,), {"driver": driver, "model": host, "refused": REFUSED})()
    return made


def run_sessions(driver: Driver, host: type[Any]) -> None:
    """All tests of sessions."""
    made = sessions(driver, host)
    made.test_each_operation_is_done_once()
    made.test_each_operation_is_done_once_wherever_the_process_is_killed()
    for fault in NetworkFault:
        made.test_each_operation_is_done_once_whatever_the_network_does(fault)


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


REPEATED = "test_a_number_that_comes_again_gets_what_is_claimed"
NUMBERS = "test_numbers_go_on_as_claimed"
TOO_HIGH = "test_a_number_that_is_too_high_gets_what_is_claimed"
REFUSES = "test_a_refused_operation_uses_its_number_as_claimed"
TAKES_ANY = {"gapless": False, "repeated": Repeats.DONE_TWICE}
LIKELY: dict[str, Any] = {"expected": "used", "repeated": "refused"}


@pytest.mark.parametrize(
    ("test", "claims", "kind"),
    [
        (REPEATED, {"repeated": Repeats.DONE_TWICE}, {}),
        (REPEATED, {"repeated": Repeats.DONE_TWICE}, {"repeated": "last_answer"}),
        (REPEATED, {"repeated": Repeats.LAST_ANSWER}, {}),
        (REPEATED, {}, {"repeated": "done_twice"}),
        (REPEATED, {}, {"repeated": "last_answer"}),
        (REPEATED, {}, {"repeated": "punished"}),
        (NUMBERS, {}, {"modulus": 600}),
        (NUMBERS, {"modulus": 700, "lowest": 500}, {"modulus": 700, "lowest": 499}),
        (NUMBERS, {"modulus": 700}, {"modulus": 600}),
        (NUMBERS, {"modulus": 600}, {"modulus": 700}),
        (NUMBERS, {"modulus": 600, **TAKES_ANY}, {"modulus": 700, **TAKES_ANY}),
        (NUMBERS, {}, {"resets": "session"}),
        (NUMBERS, {"resets": Resets.SESSION}, {}),
        (NUMBERS, {"resets": Resets.SESSION, "lowest": 1}, {"resets": "session"}),
        (TOO_HIGH, {}, {"gapless": False}),
        (TOO_HIGH, {"gapless": False}, {}),
        (REFUSES, {"rejection_uses": RejectionUses.NO}, {"rejection_uses": "yes"}),
        (REFUSES, {"rejection_uses": RejectionUses.YES}, {"rejection_uses": "no"}),
    ],
    ids=str,
)
def test_a_claim_that_the_model_does_not_keep_is_caught(
    test: str, claims: dict[str, Any], kind: dict[str, Any]
) -> None:
    """Without any fault. The same test passes where the host keeps it."""
    can = Capabilities(expected=Expects.USED, repeated=Repeats.REFUSED)
    getattr(sessions(FrameDriver(can), model(**LIKELY)), test)()
    with pytest.raises(Mistake):
        getattr(sessions(FrameDriver(replace(can, **claims)), model(**{**LIKELY, **kind})), test)()


def test_an_answer_that_names_another_number_is_caught_on_the_model() -> None:
    test = "test_an_answer_that_names_its_number_is_no_others"
    getattr(sessions(LineDriver(), LineHost), test)()
    with pytest.raises(Mistake, match="names another number"):
        getattr(sessions(LineDriver(kind=TakesAnyNumber), LineHost), test)()


class Summed(LineWire):
    """Each line of its answers has a check sum behind it."""

    def read(self, line: bytes) -> Event:
        text, _, told = line.rpartition(b"*")
        if told != sum_of(text):
            raise Garbled("another check sum")
        return super().read(text)


class SumsNothing(LineWire):
    def read(self, line: bytes) -> Event:
        return super().read(line.rpartition(b"*")[0])


def sum_of(text: bytes) -> bytes:
    return b"%02X" % (sum(text) % 256)


def with_sum(sample: Sample) -> Sample:
    lines = sample.answer.splitlines()
    return replace(sample, answer=b"".join(b"%s*%s\n" % (line, sum_of(line)) for line in lines))


def test_a_check_sum_that_nobody_checks_is_caught() -> None:
    test, samples = "test_a_changed_byte_never_changes_the_meaning", tuple(map(with_sum, Right.samples))
    own = {"check_sum": True, "greeting": with_sum(Right.greeting)}
    run(LineDriver(kind=Summed), test, samples, **own)
    with pytest.raises(Mistake, match="its check sum is of other bytes"):
        run(LineDriver(kind=SumsNothing), test, samples, **own)


def test_what_decides_which_tests_there_are_must_be_said() -> None:
    with pytest.raises(Mistake, match="say whether the host's answers have a check sum"):
        run(LineDriver(), "test_a_changed_byte_never_changes_the_meaning", check_sum=None)
    silent: SessionTests = type("Sessions", (SessionTests,), {"driver": LineDriver(), "model": LineHost})()
    with pytest.raises(Mistake, match="refused = a body that the model refuses"):
        silent.test_a_refused_operation_uses_its_number_as_claimed()


def test_a_claim_without_a_sample_is_named() -> None:
    without = tuple(sample for sample in Right.samples if sample.name not in {"gap", "another's"})
    with pytest.raises(Mistake, match=r"add a sample whose events have: Gap, Unlisted$"):
        run(LineDriver(), "test_each_claim_has_a_sample", without)


def test_an_exception_that_is_not_needed_is_refused() -> None:
    """It would switch off the test of other numbers' answers."""
    test = "test_an_answer_is_said_to_name_no_number_only_where_it_must"
    run(LineDriver(), test)
    named = (replace(Right.samples[0], names_number=False),)
    with pytest.raises(Mistake, match="leave it out"):
        run(LineDriver(), test, named)
    with pytest.raises(Mistake, match="the answer has 501 in it"):
        run(LineDriver(kind=TakesAnyNumber), test, named)


def test_what_is_impure_is_named_with_its_line() -> None:
    with pytest.raises(Mistake, match=r"impurity\.py, line \d+: imports time; .* calls open; .* calls now"):
        run(clocked_driver.ClockedDriver(), "test_the_source_is_pure")


def test_a_peers_secret_is_in_no_representation() -> None:
    assert "hidden" not in repr(Peer(authorization="hidden"))
