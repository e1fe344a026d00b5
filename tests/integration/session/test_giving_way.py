"""What is not on the wire gives way: to an urgent send, after a rejection, and when its sends are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from oldhost_sync.oldhost.session import Session
from oldhost_sync.policy.machine.events import SendEnded
from tests.integration.session.stage import Process, Stage, outcomes, send

pytestmark = pytest.mark.mariadb


class Sending:
    """Sends in threads; `once(call, number, act)` acts in the product's own thread before or after its n-th call."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.reports: dict[str, SendEnded] = {}
        self._acts: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._calls: dict[tuple[str, str], int] = {}
        self._threads: list[threading.Thread] = []
        self.session: Session = stage.session(Process(self._hook))

    def once(self, call: str, when: str, number: int, act: Callable[[], None]) -> None:
        self._acts[call, when, number] = act

    def _hook(self, call: str, when: str) -> None:
        number = self._calls[call, when] = self._calls.get((call, when), 0) + 1
        if act := self._acts.pop((call, when, number), None):
            act()

    def begin(self, name: str, ids: Sequence[int], sequence: int = 0, *, urgent: bool = False) -> None:
        """Returns when the send waits for its turn, or was under way at once."""
        waits = threading.Event()

        def run() -> None:
            self.reports[name] = self.session.send(ids, waits.set, sequence=sequence, urgent=urgent)
            waits.set()

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()
        assert waits.wait(5)

    def end(self) -> None:
        for thread in self._threads:
            thread.join()

    def outcomes(self, name: str) -> list[str]:
        return outcomes(self.reports[name])


@pytest.fixture
def sending(stage: Stage) -> Sending:
    stage.limits = replace(stage.limits, request_timeout_seconds=1.5, predecessor_seconds=5.0)
    return Sending(stage)


def test_a_send_heartbeats_between_its_operations_however_quick_the_answers_are(stage: Stage) -> None:
    ids, applied_at_beats = [stage.world.record(f"u{number}") for number in range(4)], list[int]()
    stage.session().send(ids, lambda: applied_at_beats.append(len(stage.applied_ids())), sequence=0)
    assert {1, 2, 3} <= set(applied_at_beats)


def test_an_urgent_batch_goes_before_all_that_is_not_on_the_wire(stage: Stage, sending: Sending) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(6)]
    urgent = stage.world.record("u9")
    sending.once("write", "after", 2, lambda: sending.begin("urgent", [urgent], urgent=True))
    sending.once("write", "after", 1, lambda: sending.begin("second", ids[4:], 2))
    sending.begin("first", ids[:4], 1)
    sending.end()
    assert stage.applied_ids() == [*ids[:2], urgent, *ids[2:]]
    assert [sending.outcomes(name) for name in ("first", "second", "urgent")] == [
        ["APPLIED"] * 4,
        ["APPLIED"] * 2,
        ["APPLIED"],
    ]
    stage.check_clean()


def test_urgent_sends_are_sent_in_their_order_though_the_later_one_reaches_the_worker_first(
    stage: Stage, sending: Sending
) -> None:
    """Several emergencies of a unit in both: were the later send first, its own would be refused, and wait again."""
    ordinary = stage.world.record("u8")
    ids = [stage.world.record(f"u{number % 3}") for number in range(8)]

    def both_arrive() -> None:
        sending.begin("second", ids[4:], 2, urgent=True)
        sending.begin("first", ids[:4], 1, urgent=True)

    sending.once("write", "after", 1, both_arrive)
    sending.begin("ordinary", [ordinary], 1)
    sending.end()
    assert stage.applied_ids() == [ordinary, *ids]
    assert sending.outcomes("second") == ["APPLIED"] * 4
    stage.check_clean()


def test_an_urgent_operation_is_marked_while_the_one_before_it_is_on_the_wire(stage: Stage, sending: Sending) -> None:
    ids, urgent = [stage.world.record(f"u{number}") for number in range(3)], stage.world.record("u9")

    def is_marked() -> bool:
        row = stage.world.row(502)
        return row is not None and row[:2] == (urgent, "SENT")

    sending.once("write", "after", 1, lambda: sending.begin("urgent", [urgent], urgent=True))
    sending.once("read", "before", 1, lambda: stage.wait_for(is_marked))
    sending.begin("first", ids, 1)
    sending.end()
    assert stage.applied_ids() == [ids[0], urgent, *ids[1:]]
    assert stage.world.archived() == []
    stage.check_clean()


def test_a_marked_operation_that_gave_way_is_kept_as_evidence_and_no_nonce_is_skipped(
    stage: Stage, sending: Sending
) -> None:
    ids, urgent = [stage.world.record(f"u{number}") for number in range(3)], stage.world.record("u9")
    # Its second transaction marks the second operation, while the first is on the wire.
    sending.once("advance", "after", 2, lambda: sending.begin("urgent", [urgent], urgent=True))
    sending.begin("first", ids, 1)
    sending.end()
    assert stage.applied_ids() == [ids[0], urgent, *ids[1:]]
    assert stage.world.archived() == [502]
    assert stage.world.counts() == (504, 505)
    stage.check_clean()


def test_an_urgent_change_takes_what_goes_before_it_along(stage: Stage, sending: Sending) -> None:
    first, second, older = (stage.world.record(unit) for unit in ("u1", "u2", "u3"))
    urgent = stage.world.record("u3")
    sending.once("write", "after", 1, lambda: sending.begin("urgent", [older, urgent], urgent=True))
    sending.begin("first", [first, second, older], 1)
    sending.end()
    assert stage.applied_ids() == [first, older, urgent, second]
    assert sending.outcomes("first") == ["APPLIED"] * 3
    assert sending.outcomes("urgent") == ["APPLIED"] * 2
    stage.check_clean()


def test_an_urgent_change_waits_for_one_of_its_own_that_is_on_the_wire(stage: Stage, sending: Sending) -> None:
    older, other, urgent = stage.world.record("u1"), stage.world.record("u2"), stage.world.record("u1")
    sending.once("write", "after", 1, lambda: sending.begin("urgent", [older, urgent], urgent=True))
    sending.begin("first", [older, other], 1)
    sending.end()
    assert stage.applied_ids() == [older, urgent, other]
    assert sending.outcomes("urgent") == ["APPLIED", "APPLIED"]
    stage.check_clean()


def test_what_is_behind_a_rejected_change_of_its_entity_is_held(stage: Stage, sending: Sending) -> None:
    """Though it had its nonce, and was marked, when the rejection came."""
    rejected, behind, other = stage.world.record("u1"), stage.world.record("u1"), stage.world.record("u2")
    last = stage.world.record("u1")
    stage.fault("reject", next=1, consume=True)
    sending.once("write", "after", 1, lambda: sending.begin("second", [last], 2))
    sending.begin("first", [rejected, behind, other], 1)
    sending.end()
    assert sending.outcomes("first") == ["DEAD", "HELD", "APPLIED"]
    assert sending.outcomes("second") == ["HELD"]
    assert stage.applied_ids() == [other]
    stage.check_clean()


def test_what_was_bound_before_keeps_its_nonce_whoever_is_urgent(stage: Stage) -> None:
    bound, urgent, other = (stage.world.record(unit) for unit in ("u1", "u2", "u3"))
    stage.fault("drop_before", next=1)
    send(stage.session(), [bound])
    sending = Sending(stage)
    sending.once("reserve", "before", 1, lambda: sending.begin("urgent", [urgent], urgent=True))
    sending.begin("first", [bound, other], 1)
    sending.end()
    assert stage.applied_ids() == [bound, urgent, other]
    stage.check_clean()


def test_an_urgent_send_that_takes_a_bound_change_along_waits_for_all_that_is_bound(stage: Stage) -> None:
    """It came before the send of what is bound: it had the first bound nonce and a new one, but not the one between."""
    bound, marked, urgent = (stage.world.record(unit) for unit in ("u1", "u2", "u1"))
    stage.fault("drop_before", next=1)
    send(stage.session(), [bound, marked])
    sending = Sending(stage)
    sending.begin("urgent", [bound, urgent], urgent=True)
    sending.begin("bound", [bound, marked], 1)
    sending.end()
    assert stage.applied_ids() == [bound, marked, urgent]
    stage.check_clean()


def test_stopped_sends_end_with_the_operation_on_the_wire_and_the_session_goes_on(
    stage: Stage, sending: Sending
) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(4)]

    def stop() -> None:
        sending.begin("second", ids[2:], 2)
        sending.session.stop_sends()

    sending.once("write", "after", 1, stop)
    sending.begin("first", ids[:2], 1)
    sending.end()
    assert sending.outcomes("first") + sending.outcomes("second") == ["APPLIED", "WAITING", "WAITING", "WAITING"]
    assert stage.world.counts() == (501, 502), "nothing is reserved any more"
    assert outcomes(send(sending.session, ids[1:], 3)) == ["APPLIED"] * 3
    stage.check_clean()


def test_a_batch_whose_time_is_over_leaves_the_rest(stage: Stage) -> None:
    stage.limits = replace(stage.limits, send_seconds=10.0)
    process = Process()
    ids = [stage.world.record(f"u{number}") for number in range(3)]

    def hook(call: str, when: str) -> None:
        if (call, when) == ("read", "after"):
            process.clock_offset += 11.0

    session = stage.session(process)
    process.hook = hook
    sent = send(session, ids, 1)
    assert outcomes(sent) == ["APPLIED", "WAITING", "WAITING"]
    assert sent.session_open
    process.hook = lambda *_: None
    assert set(outcomes(send(session, ids, 2))) == {"APPLIED"}
    stage.check_clean()
