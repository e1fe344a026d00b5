"""Every kind of host after an ambiguous end: a process killed at any call, an answer that is lost, late or can't be
read. Each operation is done exactly once, or a halt names the one that an operator has to decide about.

The ledger is the simulation's, which keeps the suite that MariaDB's keeps; the host is the simulator, over sockets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest
from sqlalchemy.engine import Engine

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.driver_kit.memory_database import MemoryDatabase, PlainEngine
from oldhost_sync.oldhost.recovery import NO_FIRST_NUMBER, Opened
from oldhost_sync.oldhost.refusals import ConnectionPace
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from tests.conformance.maria_world import MariaWorld
from tests.conformance.test_simulated_ledger import Clock
from tests.integration.session.stage import LIMITS, Process, ProcessDied, Stage, outcomes, send
from tests.kinds_of_host import FIRST_NUMBER, KINDS, Kind

WHEN = ("before", "after")
# Until a session is open. The host needs a moment to notice that the last connection is gone.
OPENINGS_MAX = 20
# What becomes of an operation or of its answer on the way.
LOSSES: dict[str, dict[str, Any]] = {
    "drop_before": {},
    "drop_after": {},
    "apply_late": {"delay_ms": 5},  # well within the time that a session waits for it
    "cut_reply": {},
    "garbage": {},
    "swallow": {},
}


class KindStage(Stage):
    """`decided`: how often an operator had to decide about a halt, by what the host has; `restarts`: of the host."""

    def __init__(self, world: MariaWorld, host: Simulator, kind: Kind) -> None:
        super().__init__(world, host)
        self.kind, self.driver = kind, kind.driver
        self.decided = self.restarts = 0
        self.many_mishaps = False

    def opening(self, process: Process | None = None) -> Opened:
        seen: list[Any] = []
        while True:
            outcome = self.open(process)
            if isinstance(outcome, Opened):
                return outcome
            seen.append(outcome)
            assert len(seen) < OPENINGS_MAX, seen
            if isinstance(outcome, OpeningPostponed):
                assert outcome.reason in {"settle", "ban", "connection", "in-use"}, outcome
                self.pace = ConnectionPace()
                if outcome.reason in {"settle", "ban"}:
                    self.world.age(outcome.wait_ms / 1000)
            else:
                self.decide(outcome)

    def decide(self, halt: OpeningHalted) -> None:
        """The operator looks whether the host has the operation that the halt names."""
        assert "nobody can say whether OldHost took change" in halt.message, halt
        self.decided += 1
        change_id = int(halt.message.split("took change ")[1].split()[0])
        entries = self.simulator.control(lambda controls: controls.journal(0))
        is_used = any(
            one.expected_nonce > one.nonce and (one.body or {}).get("event_id") == change_id for one in entries
        )
        count = self.begin(Process()).count()
        assert self.world.decide("resolve", mode="adopt" if is_used else "resend", count=count) == ""

    def finish(self, ids: list[int]) -> None:
        """What the writer does after a worker died: open, send what is bound, then what waits."""
        rounds = 0
        while waiting := [fate for fate in self.world.ledger.fates(ids) if fate.outcome in {"WAITING", "BOUND"}]:
            rounds += 1
            assert rounds < OPENINGS_MAX, waiting
            self.rest()  # of what was set apart
            opened = self.opening()
            bound = [ref[0] for ref in opened.event.bound]
            todo = [fate.change_id for fate in waiting if fate.change_id not in bound]
            send(opened.session, bound + todo)
            opened.session.close("next")

    def check(self, ids: list[int], rejected: int) -> None:
        """Each operation was applied exactly once, but the one that the host rejects."""
        entries = self.simulator.control(lambda controls: controls.journal(0))
        applied = [(one.body or {})["event_id"] for one in entries if one.outcome == "applied"]
        unsure = {fate.change_id for fate in self.world.ledger.fates(ids) if fate.outcome == "DEAD" and fate.unproven}
        assert not unsure or self.many_mishaps, "only two lost answers give a number to another operation"
        assert len(applied) == len(set(applied))
        assert {*applied} | unsure == {*ids} - {rejected} | unsure
        used = [one.nonce for one in entries if one.expected_nonce > one.nonce]
        assert used == list(range(FIRST_NUMBER, FIRST_NUMBER + len(used)))
        told = outcomes(self.world.ledger.fates(ids))
        fates = {one: fate for one, fate in zip(ids, told, strict=True) if one == rejected or one not in unsure}
        lost = not self.kind.tells_rejections or self.decided
        assert fates.pop(rejected) in ({"DEAD", "APPLIED"} if lost else {"DEAD"})
        assert set(fates.values()) == {"APPLIED"}
        proven = [fate.change_id for fate in self.world.ledger.fates(ids) if not fate.unproven]
        assert proven == ids or lost or unsure
        stats = self.stats()
        assert stats["gaps"] == 0
        assert stats["replays"] == 0 or self.kind.repeated == "refused"
        loses_its_memory = self.kind.more.get("resets") == "session" or self.restarts
        may_halt = self.kind.repeated == "done_twice" or loses_its_memory
        assert not self.decided or (may_halt and not self.kind.plan.asks)


@contextlib.contextmanager
def staged(kind: Kind) -> Iterator[KindStage]:
    config = Config(latency_ms=0, ban_seconds=900, first_nonce=FIRST_NUMBER, dialect="frame", behaviour=kind.behaviour)
    database = MemoryDatabase(Clock())
    with Simulator(config) as host:
        stage = KindStage(MariaWorld(cast("Engine", PlainEngine(database)), LIMITS.settle_seconds), host, kind)
        yield stage
        stage.close()
    database.raw.close()


def prepare(stage: KindStage) -> list[int]:
    stage.fault("reject", rule={"entity_id": "u1"}, next=3)
    return [stage.world.record(f"u{number}", payload={"n": number}) for number in range(4)]


def scenario(stage: KindStage, ids: list[int], process: Process) -> None:
    opened = stage.open(process)
    if isinstance(opened, Opened):
        send(opened.session, ids)
        opened.session.close("over")


def calls_of(kind: Kind) -> list[str]:
    process = Process()
    with staged(kind) as stage:
        ids = prepare(stage)
        scenario(stage, ids, process)
        stage.finish(ids)
        stage.check(ids, ids[1])
    return effects(process)


def effects(process: Process) -> list[str]:
    """Its calls without the looks for an answer: how many those are depends on how long things take."""
    return [call for call in process.calls if call != "await_answer"]


def killed_at(number: int, when: str) -> Process:
    process = Process()

    def hook(call: str, seen: str) -> None:
        if seen == when and len(effects(process)) == number:
            process.die()

    process.hook = hook
    return process


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", KINDS)
def test_a_process_killed_at_any_call_loses_and_doubles_nothing(
    subtests: pytest.Subtests, name: str, when: str
) -> None:
    kind = KINDS[name]
    for number, call in enumerate(calls_of(kind), start=1):
        with subtests.test(f"{when} call {number}, {call}"), staged(kind) as stage:
            ids = prepare(stage)
            process = killed_at(number, when)
            with contextlib.suppress(ProcessDied):
                scenario(stage, ids, process)
            assert process.dead
            stage.finish(ids)
            stage.check(ids, ids[1])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", KINDS)
def test_an_answer_that_is_lost_loses_and_doubles_nothing(subtests: pytest.Subtests, name: str, loss: str) -> None:
    """Each operation's, the rejected one's, too; and once more that of its second send."""
    kind = KINDS[name]
    if loss == "apply_late" and kind.more.get("resets") == "session":
        return  # what the host has read is gone with its session; the test's clock skips the time of that
    for entity, times in ((entity, times) for entity in ("u0", "u1", "u3") for times in (1, 2)):
        with subtests.test(f"{loss} of {entity}, {times} times"), staged(kind) as stage:
            ids = prepare(stage)
            stage.fault(loss, rule={"entity_id": entity}, next=times, **LOSSES[loss])
            scenario(stage, ids, Process())
            stage.finish(ids)
            stage.check(ids, ids[1])


def live(kind: Kind, seed: int) -> None:
    """Lives of several processes, each with mishaps of its own. After several an operation may become a letter that
    somebody is told of: its number was free, another had it, and no answer says which of the two used it.
    """
    random = Random(seed)
    losses = [loss for loss in LOSSES if loss != "apply_late" or kind.more.get("resets") != "session"]
    with staged(kind) as stage:
        stage.many_mishaps = True
        stage.fault("reject", rule={"entity_id": "u1"}, next=20)
        ids = [stage.world.record(f"u{number}", payload={"n": number}) for number in range(10)]
        for _ in range(random.randint(2, 6)):
            if random.random() < 0.7:
                loss, entity = random.choice(losses), f"u{random.randrange(10)}"
                stage.fault(loss, rule={"entity_id": entity}, next=random.randint(1, 2), **LOSSES[loss])
            if random.random() < 0.2:
                stage.control(lambda controls: controls.restart({}))
                stage.restarts += 1
            process = killed_at(random.randint(1, 40), random.choice(WHEN)) if random.random() < 0.6 else Process()
            opened = stage.opening()
            opened.session.close("the next process")
            waiting = [one.change_id for one in stage.world.ledger.fates(ids) if one.outcome in {"WAITING", "BOUND"}]
            with contextlib.suppress(ProcessDied):
                scenario(stage, waiting[: random.randint(1, 10)], process)
        stage.control(lambda controls: controls.switch_off())
        stage.fault("reject", rule={"entity_id": "u1"})
        stage.finish(ids)
        stage.check(ids, ids[1])


@pytest.mark.parametrize("name", KINDS)
def test_lives_with_many_mishaps_lose_and_double_nothing(subtests: pytest.Subtests, name: str) -> None:
    for seed in range(5):
        with subtests.test(f"seed {seed}"):
            live(KINDS[name], seed)


def test_a_number_that_an_earlier_send_has_used_does_not_end_the_session() -> None:
    with staged(KINDS["refuses"]) as stage:
        ids = [stage.world.record("u0"), stage.world.record("u2")]
        stage.fault("drop_after", next=1)
        scenario(stage, ids[:1], Process())
        sent = send(stage.opening().session, ids)
        assert (sent.session_open, outcomes(sent)) == (True, ["APPLIED", "APPLIED"])
        assert stage.applied_ids() == ids


def test_what_a_host_would_repeat_is_decided_by_an_operator_after_its_restart() -> None:
    """Its last answer was in its memory only."""
    with staged(KINDS["last answer"]) as stage:
        (one,) = (stage.world.record("u0"),)
        stage.fault("drop_after", next=1)
        scenario(stage, [one], Process())
        stage.control(lambda controls: controls.restart({}))
        opened = stage.open()
        while isinstance(opened, OpeningPostponed):
            stage.world.age(opened.wait_ms / 1000)
            opened = stage.open()
        assert isinstance(opened, OpeningHalted)
        assert f"took change {one}" in opened.message
        assert "was restarted since" in opened.message
        stage.decide(opened)
        stage.finish([one])
        assert stage.applied_ids() == [one]
        stage.check_clean()


@pytest.mark.parametrize("loss", ["drop_before", "drop_after"])
@pytest.mark.parametrize("name", ["outcome by id", "outcome by id, rejections use none"])
def test_what_became_of_a_change_says_nothing_about_its_retry(name: str, loss: str) -> None:
    """Both have its key."""
    with staged(KINDS[name]) as stage:
        ids = [stage.world.record("u0"), stage.world.record("u1"), stage.world.record("u2")]
        stage.fault("reject", rule={"entity_id": "u1"}, next=1)
        scenario(stage, ids, Process())
        assert stage.world.decide("retry", change_id=ids[1]) == ""
        stage.fault(loss, next=1)
        scenario(stage, ids[1:2], Process())
        stage.finish(ids)
        assert (sorted(stage.applied_ids()), stage.decided) == (ids, 0)
        assert outcomes(stage.world.ledger.fates(ids)) == ["APPLIED"] * 3
        stage.check_clean()


NIGHTLY = Kind(expected="used", tells_rejections=False, more={"resets": "day", "lowest": 1})


def test_a_host_that_begins_to_count_anew_at_night_gets_its_lowest_number_next() -> None:
    with staged(NIGHTLY) as stage:
        ids = [stage.world.record(f"u{number}") for number in range(4)]
        for night in range(2):
            scenario(stage, ids[2 * night : 2 * night + 2], Process())
            stage.control(lambda controls: controls.reset({}))
        assert stage.applied_ids() == ids
        assert stage.world.counts() == (FIRST_NUMBER + 3, FIRST_NUMBER + 4), "the ledger's own number goes on"
        stage.check_clean()


def test_a_night_within_a_session_costs_one_gap_and_nothing_else() -> None:
    with staged(NIGHTLY) as stage:
        one, other = stage.world.record("u0"), stage.world.record("u1")
        session = stage.session()
        send(session, [one])
        stage.control(lambda controls: controls.reset({}))
        send(session, [other])
        assert not session.is_open
        stage.finish([one, other])
        assert stage.applied_ids() == [one, other]
        assert (stage.stats()["gaps"], stage.stats()["replays"]) == (1, 0)


def test_a_lost_answer_right_after_a_night_is_no_second_night() -> None:
    """The host wants its lowest number, as the ledger says: nothing was taken since."""
    with staged(NIGHTLY) as stage:
        one, other = stage.world.record("u0"), stage.world.record("u1")
        scenario(stage, [one], Process())
        stage.control(lambda controls: controls.reset({}))
        stage.fault("drop_before", next=1)
        scenario(stage, [other], Process())
        stage.finish([one, other])
        assert (stage.applied_ids(), stage.decided) == ([one, other], 0)
        stage.check_clean()


@pytest.mark.parametrize("loss", ["drop_before", "drop_after"])
def test_an_answer_that_is_lost_before_a_night_is_decided_by_an_operator(loss: str) -> None:
    """The count has begun anew, and says nothing about it."""
    with staged(NIGHTLY) as stage:
        one, other = stage.world.record("u0"), stage.world.record("u1")
        stage.fault(loss, next=1)
        scenario(stage, [one], Process())
        stage.control(lambda controls: controls.reset({}))
        stage.finish([one, other])
        assert (stage.applied_ids(), stage.decided) == ([one, other], 1)
        stage.check_clean()


def test_a_host_that_counts_anew_without_having_declared_it_went_back() -> None:
    with staged(Kind(expected="used", more={"lowest": 1})) as stage:
        (one,) = (stage.world.record("u0"),)
        scenario(stage, [one], Process())
        stage.control(lambda controls: controls.reset({}))
        halted = stage.open()
        assert isinstance(halted, OpeningHalted)
        assert "it went back" in halted.message


@pytest.mark.parametrize(("entity_event", "is_resent"), [("unit_status_changed", True), ("booking_created", False)])
def test_a_type_that_may_be_sent_twice_needs_no_operator(entity_event: str, is_resent: bool) -> None:
    with staged(KINDS["nothing"]) as stage:
        stage.resent_types = frozenset({entity_event})
        one = stage.world.record("u0", entity_event, {"status": "Clean"})
        stage.fault("drop_before", next=1)
        scenario(stage, [one], Process())
        stage.finish([one])
        assert stage.decided == (0 if is_resent else 1)
        assert stage.applied_ids() == [one]


def test_a_host_that_went_back_halts_at_the_first_gap() -> None:
    """It can't be asked for its count, so nothing else would show that."""
    with staged(KINDS["outcome by id"]) as stage:
        ids = prepare(stage)
        stage.fault("reject", next=0)
        scenario(stage, ids[:1], Process())
        stage.control(lambda controls: controls.restore({"expected_nonce": FIRST_NUMBER}))
        scenario(stage, ids[2:3], Process())
        halted = stage.open()
        assert isinstance(halted, OpeningHalted)
        assert f"OldHost expects nonce {FIRST_NUMBER}, and our next one is {FIRST_NUMBER + 1}" in halted.message


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.expected == "never"])
def test_a_host_that_tells_no_first_number_halts_until_an_operator_does(name: str) -> None:
    kind = KINDS[name]
    silent = Kind(kind.expected, kind.outcome, kind.repeated, kind.rejection_uses, more={"logon_expected": False})
    with staged(silent) as stage:
        ids = prepare(stage)
        halted = stage.open()
        if kind.outcome == "last":
            assert isinstance(halted, Opened)
            return
        assert isinstance(halted, OpeningHalted)
        assert halted.message == NO_FIRST_NUMBER
        assert stage.world.decide("resolve", mode="adopt", expected=FIRST_NUMBER) == ""
        stage.finish(ids)
        stage.check(ids, ids[1])
