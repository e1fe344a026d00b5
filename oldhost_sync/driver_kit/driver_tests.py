"""The tests of a driver. A class inherits them and says what is tested:

    class TestMine(DriverTests):
        driver = MyDriver()
        check_sum = True
        samples = (Sample(...), ...)

pytest runs them for each sample. None needs a network or a database. A failure is a `Mistake`, which says what to do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from oldhost_sync.driver_kit.mistake import Mistake, check
from oldhost_sync.driver_kit.purity import impurities
from oldhost_sync.driver_kit.sample import (
    AskExpected,
    AskOutcome,
    Greet,
    Operation,
    Read,
    Request,
    Sample,
    cut,
    fed,
    is_declared,
    wire_for,
    written,
)
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, Repeats
from oldhost_sync.drivers.claims import undeclared
from oldhost_sync.drivers.contract import API, LOCAL, Driver, Garbled, Peer, Wire
from oldhost_sync.drivers.events import (
    NONCE_MAX,
    REASON_LENGTH_MAX,
    Answer,
    Applied,
    Banned,
    Busy,
    Closing,
    End,
    Event,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    Told,
    Unlisted,
    Working,
    Write,
)

# For each sample: enough to find a careless branch, few enough for a second.
MUTATIONS = 300
CUTS = 200
CHANGES = 2000
SCHEMES = frozenset({"http", "https", "tcp", "tls"})
ANSWER_BYTES_MAX = 16 * 1024 * 1024
SECRET = "c4n4ry-t0k3n-of-the-kit"  # noqa: S105 - it lets nobody in
FOREIGN = b"Xforeignwordx"
_CLAIM_MODULUS = "Then claim modulus and lowest"
# Numbers that no ledger counts from, and one that Python does not even read.
# Around the last number of a byte, of two, of four; of two digits, of three and so on.
WIDTHS = sorted({
    *(2**bits + step for bits in (7, 8, 15, 16, 31, 32, 61) for step in (-1, 0)),
    *(10**digits + step for digits in range(1, 19) for step in (-1, 0)),
})  # fmt: skip
ODD_NUMBERS = (b"-1", str(NONCE_MAX + 1).encode(), b"9" * 40, b"9" * 5000, b"1e999", b"NaN", b"1.5")


class DriverTests:
    """`check_sum`: whether the host's answers have one, so that a changed byte is noticed. `greeting`: the sample of a
    Greet, if the driver greets; it goes before each other sample. `peer`: whom the samples were written to.
    """

    driver: ClassVar[Driver]
    check_sum: ClassVar[bool]
    samples: ClassVar[tuple[Sample, ...]]
    greeting: ClassVar[Sample | None] = None
    peer: ClassVar[Peer] = LOCAL

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Each test that takes a sample runs once for each; one that takes a result, for those that have one."""
        results = [sample for sample in self.samples if _results(sample.events)]
        for name, samples in (("sample", self._all()), ("result", results)):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, samples, ids=[sample.name for sample in samples])

    # ----------------------------------------------------------------------------------------------- the driver itself

    def test_the_driver_is_of_this_contract(self) -> None:
        driver = self.driver
        check(driver.api == API, f"api is {driver.api!r}: this contract's version is {API}")
        check(driver.schemes and {*driver.schemes} <= SCHEMES, f"schemes: some of {', '.join(sorted(SCHEMES))}")
        can = driver.capabilities
        check(isinstance(can, Capabilities), "capabilities: give a Capabilities")
        modulus = can.modulus
        # At most two numbers are in doubt at once; those and their neighbours must differ.
        check(modulus is None or modulus - can.lowest >= 8, "numbers wrap after fewer than 8: they prove nothing then")
        longest = max(len(sample.answer) for sample in self._all())
        limit = driver.answer_bytes_max
        why = f"answer_bytes_max: at least {longest}, as a sample has, and at most {ANSWER_BYTES_MAX}"
        check(longest <= limit <= ANSWER_BYTES_MAX, why)

    def test_the_source_is_pure(self) -> None:
        found = [*impurities(type(self.driver).__module__), *impurities(type(self._wire(Greet())).__module__)]
        check(not found, "a driver only turns bytes into events and back: " + "; ".join(dict.fromkeys(found)))

    def test_each_claim_has_a_sample(self) -> None:
        """What is declared is shown: else none of these tests would look at it."""
        can = self.driver.capabilities
        said = {type(event) for sample in self._all() for event in sample.events}
        wanted: list[tuple[type, bool]] = [
            (Applied, True),
            (Rejected, True),
            (Expected, can.expected is not Expects.NEVER),
            (OutcomeTold, can.outcome is not AskedOutcomes.NEVER),
            (Gap, can.gapless),
            (Replay, can.repeated in {Repeats.PUNISHED, Repeats.REFUSED}),
            (Unlisted, True),
        ]
        missing = [event.__name__ for event, is_claimed in wanted if is_claimed and event not in said]
        check(not missing, f"add a sample whose events have: {', '.join(missing)}")

    def test_each_number_has_bytes_of_its_own(self) -> None:
        """Where numbers have a width, those of the host wrap."""
        can = self.driver.capabilities
        highest = NONCE_MAX if can.modulus is None else can.modulus - 1
        body = next((sample.request.body for sample in self.samples if isinstance(sample.request, Operation)), b"")
        seen: dict[bytes, int] = {}
        for number in sorted({can.lowest, highest, *(width for width in WIDTHS if can.lowest < width < highest)}):
            try:
                made = self._wire(Operation(number, body)).operation(number, body, 0)
            except Exception as error:
                raise Mistake(
                    f"operation({number}, ...) raises {error!r}: do its numbers wrap? {_CLAIM_MODULUS}"
                ) from error
            same = seen.setdefault(made, number)
            check(same == number, f"{same} and {number} are the same on the wire: {made!r}. {_CLAIM_MODULUS}")

    def test_an_undeclared_question_is_not_made(self) -> None:
        for question in (AskExpected(), AskOutcome(1, "key")):
            if is_declared(question, self.driver.capabilities):
                check(written(self._wire(question), question), f"{question} is declared, and gives no bytes")
                continue
            try:
                made = written(self._wire(question), question)
            except NotImplementedError:
                continue
            raise Mistake(f"{question} is not declared: raise NotImplementedError instead of returning {made!r}")

    # ---------------------------------------------------------------------------------------------- what is in a sample

    def test_golden_bytes_and_events(self, sample: Sample) -> None:
        wire = self._wire(sample.request)
        made = written(wire, sample.request)
        check(made == sample.written, f"{sample.name}: the request is {made!r}, the sample has {sample.written!r}")
        read = _fed(sample, wire, [sample.answer], ends=sample.ends)
        check(read.events == sample.events, f"{sample.name}: read as {read.events}, the sample has {sample.events}")

    def test_a_sample_fits_its_request_and_what_is_declared(self, sample: Sample) -> None:
        self._check_events(sample.events, sample)
        ends = [event for event in sample.events if isinstance(event, End)]
        check(len(ends) == 1, f"{sample.name}: an exchange ends with one answer, not with {len(ends)}")
        behind = sample.events[sample.events.index(ends[0]) + 1 :]
        check(all(isinstance(event, Closing) for event in behind), f"{sample.name}: only Closing comes after its end")

    def test_any_split_gives_the_same_events(self, sample: Sample) -> None:
        whole = self._read(sample, [sample.answer])
        for places in _places(sample):
            read = self._read(sample, cut(sample.answer, places))
            check(read == whole, f"{sample.name}: cut at {places} it is read as {read}, else as {whole}")

    def test_a_prefix_and_the_end_are_never_definite(self, sample: Sample) -> None:
        for length in range(len(sample.answer)):
            events = self._events_of(sample, sample.answer[:length], ends=True)
            wrong = [event for event in events if _is_definite(event)]
            check(not wrong, f"{sample.name}: after {length} of {len(sample.answer)} bytes and the end it is {wrong}")

    def test_the_same_calls_give_the_same_bytes_and_events(self, sample: Sample) -> None:
        """Whatever was read before, over another wire or over this one."""
        first = self._played(self._wire(sample.request), sample)
        for other in self.samples:
            wire = self._wire(sample.request)
            if not other.ends and not isinstance(other.request, Greet) and not isinstance(sample.request, Greet):
                self._played(wire, other)
            again = self._played(wire, sample)
            check(again == first, f"{sample.name}: {again} after {other.name}, else {first}")

    def test_two_wires_share_nothing(self, sample: Sample) -> None:
        alone = self._played(self._wire(sample.request), sample)
        for other in self.samples:
            wire, beside = self._wire(sample.request), self._wire(other.request)
            made = written(wire, sample.request)
            middle = len(sample.answer) // 2
            before = _fed(sample, wire, [sample.answer[:middle]], ends=False)
            written(beside, other.request)
            _fed(other, beside, [other.answer], ends=other.ends)
            after = _fed(sample, wire, [sample.answer[middle:]], ends=sample.ends)
            together = made, Read(before.events + after.events, after.said)
            check(together == alone, f"{sample.name}: {together} beside {other.name} on another wire, else {alone}")

    def test_another_numbers_answer_is_never_ours(self, result: Sample) -> None:
        """Unless the sample says that it names no number: then they belong together by their order alone."""
        for other, read in self._read_by_others(result) if result.names_number else ():
            check(not read, f"{result.name}: read as {read} by {other}, whose answer it is not")

    def test_an_answer_is_said_to_name_no_number_only_where_it_must(self, sample: Sample) -> None:
        """That switches off the test above."""
        if sample.names_number:
            return
        is_ours = any(read for _, read in self._read_by_others(sample))
        check(is_ours, f"{sample.name}: names_number=False changes nothing here: leave it out")
        number = str(getattr(sample.request, "number", "")).encode()
        is_named = len(number) > 1 and re.search(rb"(?<!\d)%s(?!\d)" % number, sample.answer)
        check(
            not is_named,
            f"{sample.name}: the answer has {number.decode()} in it: read it instead of names_number=False",
        )

    def test_an_answer_without_a_meaning_is_kept_in_the_hosts_words(self, sample: Sample) -> None:
        """For whoever has to decide about it."""
        if not isinstance(sample.request, Operation):
            return
        read = self._read(sample, [sample.answer])
        is_open = any(isinstance(event, Unlisted | Gap | Replay | Banned | Busy) for event in read.events)
        if is_open:
            check(read.said is not None, f"{sample.name}: set `said` to Said(kind, words(answer)): it is None")
        elif any(isinstance(event, Applied | Rejected | Malformed) for event in read.events):
            check(read.said is None, f"{sample.name}: `said` must be None after it, not {read.said}")
        for text in (*(getattr(event, "reason", "") for event in read.events), read.said.words if read.said else ""):
            is_short = len(text) <= REASON_LENGTH_MAX and (text.isprintable() or not text)
            check(is_short, f"{sample.name}: take words(...) of events.py for the host's own: {text[:80]!r}")

    def test_a_changed_byte_never_changes_the_meaning(self, sample: Sample) -> None:
        """Where the host's answers have a check sum. One that says only that it can't read us has none, often."""
        declared = getattr(self, "check_sum", None)
        check(declared is not None, "say whether the host's answers have a check sum: check_sum = True or False")
        for data in _changed(sample.answer) if declared else ():
            wrong = [event for event in self._events_of(sample, data) if _proves(event) and event not in sample.events]
            check(not wrong, f"{sample.name}: {data!r} is read as {wrong}: its check sum is of other bytes")

    def test_an_answer_to_something_else_is_never_ours(self, result: Sample) -> None:
        """A late answer, or one that a proxy kept: an operation's is no count, and a count is no operation's."""
        for other in self.samples:
            if type(other.request) is not type(result.request):
                wrong = _results(self._events_of(replace(result, request=other.request), result.answer))
                check(not wrong, f"the answer of {result.name} is read as {wrong} by {other.request}")

    # ------------------------------------------------------------------------------------------ what no sample foresaw

    def test_nothing_but_garbled_is_raised(self, sample: Sample) -> None:
        for data in _mutations(sample):
            self._check_events(self._events_of(sample, data, ends=True), sample)

    def test_numbers_out_of_range_are_never_told(self, sample: Sample) -> None:
        for place, odd in itertools.product(re.finditer(rb"[0-9]+", sample.answer), ODD_NUMBERS):
            data = sample.answer[: place.start()] + odd + sample.answer[place.end() :]
            self._check_events(self._events_of(sample, data, ends=True), sample)

    def test_no_word_of_the_host_is_in_a_sentence(self, sample: Sample) -> None:
        """Sentences are shown to viewers and stored: only a rejection's reason and `Said.words` are the host's."""
        for place in _some_of(range(len(sample.answer) + 1), CUTS):
            data = sample.answer[:place] + FOREIGN + sample.answer[place:]
            for text in self._sentences_of(sample, data):
                check(FOREIGN.decode() not in text, f"{sample.name}: the host's words are in a sentence: {text!r}")

    def test_no_secret_is_shown(self, sample: Sample) -> None:
        """In a representation or an error: they are logged. What a host repeats of a request is kept back elsewhere."""
        peer = replace(self.peer, authorization=f"Bearer {SECRET}", sign_key=SECRET.encode())
        shown = [repr(self.driver), str(self.driver)]
        for data in (sample.answer, b"\x00", *_some_of(list(_mutations(sample)), 50)):
            wire = wire_for(self.driver, peer, self.greeting, sample.request)
            written(wire, sample.request)
            try:
                read = fed(wire, [data], ends=sample.ends)
                shown += [repr(read), str(read)]
            except Garbled as error:
                shown += _texts(error)
            shown += [repr(wire), str(wire)]
        wrong = [text for text in shown if SECRET in text]
        check(not wrong, f"{sample.name}: a secret of the peer is shown: give that field repr=False")

    # ------------------------------------------------------------------------------------------------------------------

    def _read_by_others(self, sample: Sample) -> list[tuple[Request, list[Event]]]:
        """What results it has for requests with other numbers or keys."""
        others = _others(sample.request, self.driver.capabilities)
        return [(other, _results(self._events_of(replace(sample, request=other), sample.answer))) for other in others]

    def _all(self) -> tuple[Sample, ...]:
        return self.samples if self.greeting is None else (self.greeting, *self.samples)

    def _wire(self, request: Request) -> Wire:
        return wire_for(self.driver, self.peer, self.greeting, request)

    def _played(self, wire: Wire, sample: Sample) -> tuple[bytes, Read]:
        return written(wire, sample.request), _fed(sample, wire, [sample.answer], ends=sample.ends)

    def _read(self, sample: Sample, pieces: list[bytes]) -> Read:
        wire = self._wire(sample.request)
        written(wire, sample.request)
        return _fed(sample, wire, pieces, ends=sample.ends)

    def _events_of(self, sample: Sample, data: bytes, *, ends: bool | None = None) -> tuple[Event, ...]:
        """The events of any bytes after the sample's request, up to where they are garbled."""
        wire = self._wire(sample.request)
        written(wire, sample.request)
        events: list[Event] = []
        try:
            events += wire.feed(data) if data else []
            events += (
                wire.end()
                if (sample.ends if ends is None else ends) and not any(isinstance(event, End) for event in events)
                else []
            )
        except Garbled:
            pass
        except Exception as error:
            raise Mistake(f"{sample.name}: {data[:200]!r} raises {error!r}: raise Garbled from it") from error
        return tuple(events)

    def _sentences_of(self, sample: Sample, data: bytes) -> Iterator[str]:
        wire = self._wire(sample.request)
        written(wire, sample.request)
        try:
            events = fed(wire, [data], ends=False).events
        except Garbled as error:
            yield str(error)
            return
        for event in events:
            refuses = getattr(event, "refuses", None)
            yield from (str(getattr(one, name, "")) for one in (event, refuses) for name in ("why", "surprise"))

    def _check_events(self, events: tuple[Event, ...], sample: Sample) -> None:
        for event in events:
            check(isinstance(event, Event), f"{sample.name}: {event!r} is no event")
            why = undeclared(event, self.driver.capabilities)
            check(not why, f"{sample.name}: it gives {why}")
            check(_answers(event, sample.request), f"{sample.name}: {event} does not answer {sample.request}")


def _fed(sample: Sample, wire: Wire, pieces: list[bytes], *, ends: bool) -> Read:
    try:
        return fed(wire, pieces, ends=ends)
    except Garbled as error:
        raise Mistake(f"{sample.name}: in {len(pieces)} pieces it is garbled: {error}") from error


def _is_definite(event: Event) -> bool:
    """Whether it says something that a part of an answer can't prove."""
    return not isinstance(event, Unlisted | NoService | Working | Write | Closing)


def _results(events: tuple[Event, ...]) -> list[Event]:
    return [event for event in events if isinstance(event, Applied | Rejected | Expected | OutcomeTold)]


def _proves(event: Event) -> bool:
    return isinstance(event, Applied | Rejected | Gap | Replay | Expected | OutcomeTold | Ready)


def _answers(event: Event, request: Request) -> bool:
    """Whether it may come after this request."""
    if isinstance(event, Working | Write | Closing):
        return True
    match request:
        case Operation():
            return isinstance(event, Answer)
        case AskExpected():
            return isinstance(event, Told)
        case AskOutcome():
            return isinstance(event, Told | OutcomeTold) and not isinstance(event, Expected | OutOfRange)
    return isinstance(event, Told | Ready)


def _others(request: Request, can: Capabilities) -> Iterator[Request]:
    """The same request with other numbers or keys, which the host may have answered lately."""
    if isinstance(request, AskOutcome) and can.outcome is AskedOutcomes.BY_ID:
        yield replace(request, key=f"{request.key}-2")
    elif isinstance(request, Operation) or (isinstance(request, AskOutcome) and can.outcome is AskedOutcomes.BY_NUMBER):
        for step in (-2, -1, 1, 2):
            number = request.number + step
            if can.modulus is not None:
                number = can.lowest + (number - can.lowest) % (can.modulus - can.lowest)
            if number >= can.lowest:
                yield replace(request, number=number)


def _some_of(choice: Any, count: int) -> Any:
    """All, or so many of them, always the same."""
    return choice if len(choice) <= count else Random(count).sample(list(choice), count)


def _places(sample: Sample) -> Iterator[tuple[int, ...]]:
    """Where its answer is cut: each byte alone, in two, in three."""
    length, chance = len(sample.answer), Random(sample.name)
    yield tuple(range(1, length))
    yield from ((place,) for place in _some_of(range(1, length), CUTS))
    for _ in range(CUTS if length > 2 else 0):
        first, second = sorted(chance.sample(range(1, length), 2))
        yield first, second


def _mutations(sample: Sample) -> Iterator[bytes]:
    """Answers that nobody foresaw, always the same for one name."""
    chance, answer = Random(sample.name), sample.answer
    yield from (b"\x00", b"\xff" * 64, b"{" * 3000, b"[" * 3000, b"\r\n" * 64, answer + answer)
    for _ in range(MUTATIONS):
        start = chance.randrange(len(answer) + 1)
        end = min(len(answer), start + chance.randrange(1, 8))
        filled = bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
        yield answer[:start] + chance.choice((b"", filled, answer[start:end] * 3)) + answer[end:]
    for _ in range(MUTATIONS // 3):
        yield bytes(chance.randrange(256) for _ in range(chance.randrange(1, 40)))


def _changed(answer: bytes) -> Iterator[bytes]:
    """With one byte that is another: each bit of each, and some others."""
    bits = [(place, answer[place] ^ 1 << bit) for place in range(len(answer)) for bit in range(8)]
    others = list(itertools.product(range(len(answer)), range(256)))
    for place, byte in (*_some_of(bits, CHANGES), *_some_of(others, CHANGES)):
        if byte != answer[place]:
            yield answer[:place] + bytes((byte,)) + answer[place + 1 :]


def _texts(error: BaseException | None) -> list[str]:
    """What a log would have of it."""
    if error is None:
        return []
    return [str(error), repr(error), *_texts(error.__cause__ or error.__context__)]
