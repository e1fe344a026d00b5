"""The kit's tests on the frame driver, with the exchanges of docs/frame-protocol.md and hosts of several kinds."""

from __future__ import annotations

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.sample import AskExpected, AskOutcome, Greet, Operation, Request, Sample
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    Busy,
    Closing,
    ConnectionEnd,
    ConnectionInUse,
    Event,
    Expected,
    Gap,
    Malformed,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    ToldFate,
    Unlisted,
    Working,
)
from oldhost_sync.drivers.frame.driver import FrameDriver

BODY = bytes(range(256))
OPERATION = Operation(501, BODY)


def frame(content: str, body: bytes = b"") -> bytes:
    data = content.encode() + body
    return len(data).to_bytes(4, "big") + data


def sample(name: str, request: Request, written: bytes, answer: str, *events: Event) -> Sample:
    return Sample(name, request, written, frame(answer), events)


def operated(name: str, answer: str, *events: Event, operation: Operation = OPERATION) -> Sample:
    written = frame(f'{{"type":"operation","number":{operation.number}}}\n', operation.body)
    return sample(name, operation, written, answer, *events)


def asked(name: str, answer: str, *events: Event) -> Sample:
    return sample(name, AskExpected(), frame('{"type":"expected"}'), answer, *events)


GREETING = sample(
    "logon", Greet(), frame('{"type":"logon","version":1}'),
    '{"type":"ready","expected":501,"incarnation":"2026-11-28T03:00"}', Ready(501, "2026-11-28T03:00"),
)  # fmt: skip
APPLIED = operated("applied", '{"type":"applied","number":501,"expected":502}', Applied(502))
REJECTED = operated(
    "rejected",
    '{"type":"rejected","number":501,"expected":502,"used":true,"reason":"no"}',
    Rejected("no", consumed=True),
)
ODD = operated("not in the protocol", '{"type":"merged"}', Unlisted("a frame that answers no operation"))
GAP = operated("gap", '{"type":"gap","number":501,"expected":499}', Gap(499))
WORKING = Sample(
    "working, then applied", OPERATION, APPLIED.written, frame('{"type":"working"}') * 2 + APPLIED.answer,
    (Working(), Working(), Applied(502)),
)  # fmt: skip


class TestLikeOldHost(DriverTests):
    check_sum = False
    driver = FrameDriver(Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED))
    greeting = GREETING
    samples = (
        APPLIED,
        REJECTED,
        GAP,
        ODD,
        WORKING,
        operated("used", '{"type":"used","number":501,"expected":505,"retry_after":900}', Replay(505, 900.0)),
        operated("banned", '{"type":"banned","retry_after":30}', Banned(30.0)),
        operated("busy", '{"type":"busy","retry_after":1}', Busy(1.0)),
        operated("malformed", '{"type":"malformed","reason":"no id"}', Malformed("no id")),
        operated("in use", '{"type":"in_use"}', ConnectionInUse(), Closing(ConnectionEnd.LAST)),
        operated("last", '{"type":"applied","number":501,"last":true}', Applied(None), Closing(ConnectionEnd.LAST)),
        asked("expected", '{"type":"expected","expected":501}', Expected(501)),
        asked("expects too much", '{"type":"expected","expected":-7}', OutOfRange("-7")),
        asked("asked while banned", '{"type":"banned"}', Banned(None)),
    )


class TestTheMostSuspicious(DriverTests):
    check_sum = False
    driver = FrameDriver()
    greeting = GREETING
    samples = (
        operated("applied", '{"type":"applied","number":501}', Applied(None)),
        operated(
            "rejected", '{"type":"rejected","number":501,"used":false,"reason":"no"}', Rejected("no", consumed=False)
        ),
        GAP,
        ODD,
    )


class TestOutcomesByNumberThatWrap(DriverTests):
    check_sum = False
    driver = FrameDriver(
        Capabilities(outcome=AskedOutcomes.BY_NUMBER, repeated=Repeats.LAST_ANSWER, modulus=96, lowest=32)
    )
    greeting = sample(
        "logon", Greet(), frame('{"type":"logon","version":1}'), '{"type":"ready","expected":95}', Ready(95)
    )
    samples = tuple(
        operated(name, answer.replace("501", "95"), *events, operation=Operation(95, b"{}"))
        for name, answer, *events in (
            ("applied", '{"type":"applied","number":501}', Applied(None)),
            ("rejected", '{"type":"rejected","number":501,"used":true}', Rejected("no reason given", consumed=True)),
            ("gap", '{"type":"gap","number":501,"expected":32}', Gap(32)),
            ("not in the protocol", '{"type":"merged"}', Unlisted("a frame that answers no operation")),
        )
    ) + tuple(
        sample(fate, AskOutcome(95, "key-7"), frame('{"type":"outcome","number":95}'), answer, OutcomeTold(*told))
        for fate, answer, told in (
            ("applied", '{"type":"outcome","number":95,"fate":"applied"}', (ToldFate.APPLIED, 95)),
            ("not taken", '{"type":"outcome","number":95,"fate":"not_taken"}', (ToldFate.NOT_TAKEN, 95)),
            (
                "rejected, asked",
                '{"type":"outcome","number":95,"fate":"rejected","used":true,"reason":"no"}',
                (ToldFate.REJECTED, 95, "no", True),
            ),
        )
    )


class TestOutcomesByKey(DriverTests):
    check_sum = False
    driver = FrameDriver(
        Capabilities(outcome=AskedOutcomes.BY_ID, expected=Expects.APPLIED, rejection_uses=RejectionUses.NO)
    )
    greeting = GREETING
    samples = (
        APPLIED,
        operated("rejected", '{"type":"rejected","number":501,"reason":"no"}', Rejected("no", consumed=False)),
        GAP,
        ODD,
        asked("expected", '{"type":"expected","expected":501}', Expected(501)),
        sample(
            "outcome", AskOutcome(501, "key-7"), frame('{"type":"outcome","key":"key-7"}'),
            '{"type":"outcome","key":"key-7","number":480,"fate":"applied"}', OutcomeTold(ToldFate.APPLIED, 480),
        ),
    )  # fmt: skip
