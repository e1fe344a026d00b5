"""Which send reserves next. Nobody waits long: while a send waits, another one arrives in the same thread. What the
sends do with real threads is tested in integration/session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pytest

from oldhost_sync.drivers.capabilities import OLDHOST
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.expected_nonce import FirstContact, Questions
from oldhost_sync.oldhost.ledger import Reservation, Reserved
from oldhost_sync.oldhost.refusals import ConnectionPace
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.changes import ChangeResult, Outcome, PriorityClass


class Waiting:
    """A condition: while a send waits, `meanwhile` happens once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = bool

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> None:
        self.now += timeout or 0.0
        meanwhile, self.meanwhile = self.meanwhile, bool
        meanwhile()

    def notify_all(self) -> None: ...


class NoOps:
    """A ledger where no change needs a nonce, and a connection that nobody uses."""

    authority = ""

    def __init__(self) -> None:
        self.reserved: list[int] = []

    def reserve(
        self, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int] | None = None
    ) -> Reservation:
        self.reserved += change_ids
        return Reservation(ChangeResult(change_id, Outcome.NO_OP.value) for change_id in change_ids)

    def close(self) -> None: ...


def no_heartbeat() -> None: ...


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def ledger() -> NoOps:
    return NoOps()


@pytest.fixture
def session(waiting: Waiting, ledger: NoOps) -> Session:
    return session_of(ledger, waiting)


def session_of(ledger: NoOps, waiting: Waiting) -> Session:
    clock, limits, reply_timeout = lambda: waiting.now, SessionLimits(), ReplyTimeout()
    return Session(
        ledger=ledger,  # type: ignore[arg-type]
        connection=ledger,  # type: ignore[arg-type]
        epoch=1,
        next_nonce=1,
        condition=waiting,
        clock=clock,
        limits=limits,
        reply_timeout=reply_timeout,
        first_contact=FirstContact(),
        pace=ConnectionPace(),
        questions=Questions(OLDHOST, limits, clock, reply_timeout),
    )


@pytest.mark.parametrize("urgent", [False, True])
def test_the_second_send_reserves_after_the_first_though_it_arrives_before_it(
    session: Session, waiting: Waiting, ledger: NoOps, urgent: bool
) -> None:
    waiting.meanwhile = lambda: session.send([101], no_heartbeat, sequence=1, urgent=urgent)
    session.send([102], no_heartbeat, sequence=2, urgent=urgent)
    assert ledger.reserved == [101, 102]


def test_an_urgent_send_does_not_wait_for_an_ordinary_one_that_has_not_arrived(
    session: Session, waiting: Waiting, ledger: NoOps
) -> None:
    waiting.meanwhile = lambda: session.send([201], no_heartbeat, sequence=1, urgent=True)
    session.send([102], no_heartbeat, sequence=2)
    assert ledger.reserved == [201]
    assert waiting.now == pytest.approx(SessionLimits().predecessor_seconds)


class LostCommits(NoOps):
    """A ledger that forgot its last operations, as after a fail-over without them: it gives their numbers again."""

    halted: str = ""

    def reserve(
        self, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int] | None = None
    ) -> Reservation:
        return Reservation(Reserved(0, change_id, "", b"", "", "", "", PriorityClass.LWW) for change_id in change_ids)

    def halt(self, epoch: int, reason: str) -> None:
        self.halted = reason


def test_a_ledger_that_binds_a_number_that_was_used_halts_with_both_numbers(waiting: Waiting) -> None:
    ledger = LostCommits()
    session_of(ledger, waiting).send([101], no_heartbeat, sequence=1)
    assert ledger.halted == "invariant violated: the ledger bound 0, but 1 is next: MariaDB lost commits"


def test_a_send_whose_predecessor_never_arrives_ends_the_session(session: Session) -> None:
    assert not session.send([102], no_heartbeat, sequence=2).session_open
    assert session.closed_because == "send 2 arrived, but the one before it did not"


class Dies(BaseException):
    """The thread of a send is gone."""


def test_a_send_whose_thread_dies_while_it_waits_ends_the_session(session: Session) -> None:
    def die() -> None:
        raise Dies

    with pytest.raises(Dies):
        session.send([102], die, sequence=2)
    assert not session.is_open
    assert session.drain("the worker leaves", 0.0, no_heartbeat), "nobody waits for it"
