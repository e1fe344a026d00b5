"""A process killed, or its database lost, at any single IO call, before or after its effect: nothing is lost or
doubled.

Complete, not sampled: the calls of the scenario are numbered by a run without a fault, then each is tried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from oldhost_sync.oldhost.errors import LedgerUnavailable
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.oldhost.session import Session
from oldhost_sync.policy.machine.events import OpeningPostponed
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.session.stage import LIMITS, Process, ProcessDied, Stage, outcomes, send, simulator

pytestmark = pytest.mark.mariadb

WHEN = ("before", "after")
# Each call is some half a second: a test takes one in so many of them, so that none of them is long on a busy machine.
SHARES = 4


def scenario(stage: Stage, ids: list[int], process: Process) -> None:
    """Two sends over one session; an operation in the middle is rejected, one is answered busy first."""
    opened = stage.open(process)
    assert isinstance(opened, Opened)
    send(opened.session, ids[:3])
    send(opened.session, ids[3:])


def prepare(stage: Stage) -> list[int]:
    ids = [stage.world.record(f"u{number}", payload={"n": number}) for number in range(5)]
    stage.fault("reject", rule={"entity_id": "u1"})
    stage.fault("busy", rule={"entity_id": "u3"}, next=1, retry_after=0.01)
    return ids


def finish(stage: Stage, ids: list[int]) -> None:
    """What the writer does after a worker died: open, send what is bound, then what waits."""
    while waiting := [fate for fate in stage.world.ledger.fates(ids) if fate.outcome in {"WAITING", "BOUND"}]:
        opened = stage.opening()
        bound = [ref[0] for ref in opened.event.bound]
        todo = [fate.change_id for fate in waiting if fate.change_id not in bound]
        send(opened.session, bound + todo)
        opened.session.close("next")


def check(stage: Stage, ids: list[int]) -> None:
    journal = stage.journal()
    assert [nonce for nonce, _, _ in journal] == list(range(501, 506))
    assert sorted(change_id for _, _, change_id in journal) == ids
    assert [change_id for _, outcome, change_id in journal if outcome == "rejected"] == [ids[1]]
    expected = ["APPLIED", "DEAD", "APPLIED", "APPLIED", "APPLIED"]
    recorded = outcomes(stage.world.ledger.fates(ids))
    # A rejection whose answer was lost can't be told from an application: OldHost only says that the nonce is used.
    expected[1] = recorded[1] if recorded[1] == "APPLIED" else expected[1]
    assert recorded == expected
    stage.check_clean()


@pytest.fixture(scope="module")
def calls(mariadb_server: PrivateMariaDB) -> list[str]:
    """The IO calls of the scenario, in order."""
    process = Process()
    with fresh_stage(mariadb_server) as stage:
        ids = prepare(stage)
        scenario(stage, ids, process)
        check(stage, ids)
    return effects(process)


@contextlib.contextmanager
def fresh_stage(mariadb_server: PrivateMariaDB) -> Iterator[Stage]:
    with mariadb_server.fresh_database() as engine, simulator() as oldhost:
        stage = Stage(MariaWorld(engine, LIMITS.settle_seconds), oldhost)
        yield stage
        stage.close()


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


def share_of(calls: list[str], share: int) -> list[tuple[int, str]]:
    """Every call with its number, from 1, is in one share."""
    return list(enumerate(calls, start=1))[share::SHARES]


def test_the_scenario_has_every_kind_of_call(calls: list[str]) -> None:
    assert set(calls) >= {
        "take_over", "connect", "ask", "adopt_first", "reserve", "is_alive", "advance", "write", "read",
    }  # fmt: skip


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("when", WHEN)
def test_killed_at_any_call_nothing_is_lost_and_nothing_sent_twice(
    mariadb_server: PrivateMariaDB, calls: list[str], subtests: pytest.Subtests, when: str, share: int
) -> None:
    for number, name in share_of(calls, share):
        with subtests.test(f"{when} call {number}, {name}"), fresh_stage(mariadb_server) as stage:
            ids = prepare(stage)
            process = killed_at(number, when)
            with contextlib.suppress(ProcessDied):
                scenario(stage, ids, process)
            assert process.dead
            finish(stage, ids)
            check(stage, ids)


LEDGER_CALLS = {
    "take_over", "adopt_first", "reconcile", "reserve", "advance", "uncount_send", "note_answer", "ban", "halt",
}  # fmt: skip


def database_lost_at(number: int, when: str, *, for_good: bool) -> Process:
    """The ledger's call fails; "after": it was committed, and only its answer is lost."""
    process = Process()

    def hook(call: str, seen: str) -> None:
        done = len(effects(process))
        due = done >= number if for_good else done == number
        if call in LEDGER_CALLS and seen == when and due:
            raise LedgerUnavailable("CommitUncertain: a test")

    process.hook = hook
    return process


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("for_good", [False, True])
def test_with_the_database_lost_at_any_call_nothing_is_lost_and_nothing_sent_twice(
    mariadb_server: PrivateMariaDB,
    calls: list[str],
    subtests: pytest.Subtests,
    when: str,
    share: int,
    *,
    for_good: bool,
) -> None:
    for number, name in share_of(calls, share):
        if name not in LEDGER_CALLS:
            continue
        with subtests.test(f"{when} call {number}, {name}"), fresh_stage(mariadb_server) as stage:
            ids = prepare(stage)
            process = database_lost_at(number, when, for_good=for_good)
            opened = stage.open(process)
            if isinstance(opened, Opened):
                sent = [send(opened.session, batch) for batch in (ids[:3], ids[3:])]
                assert not opened.session.is_open
                assert not any(one.session_open for one in sent[1:])
            else:
                assert isinstance(opened, OpeningPostponed)
                assert opened.reason == "database"
            finish(stage, ids)
            check(stage, ids)


def test_the_kernel_closes_a_dead_processs_connection(stage: Stage) -> None:
    session: Session = stage.session()
    session.close("killed")
    assert isinstance(stage.open(), Opened)
