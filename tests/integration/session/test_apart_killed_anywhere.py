"""An operation gives up its nonce, another takes it: a process killed at any single call of that, before or after."""

from __future__ import annotations

import contextlib

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.rules.apart import PAUSES_MS
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.session.stage import Process, ProcessDied, Stage, outcomes, send
from tests.integration.session.test_killed_anywhere import WHEN, effects, fresh_stage, killed_at

pytestmark = pytest.mark.mariadb


def prepare(stage: Stage) -> list[int]:
    """The first is refused at its first send; its answer names no nonce."""
    stage.fault("answer", rule={"entity_id": "u0"}, next=1, status=500, nonce="unused")
    return [stage.world.record(f"u{number}", payload={"n": number}) for number in range(3)]


def scenario(stage: Stage, ids: list[int], process: Process) -> None:
    opened = stage.open(process)
    assert isinstance(opened, Opened)
    assert outcomes(send(opened.session, ids[:1])) == ["BOUND"]
    stage.world.age(stage.limits.settle_seconds)
    opened = stage.open(process)
    assert isinstance(opened, Opened)
    assert opened.event.apart == [[ids[0], 1]]
    send(opened.session, ids[1:])
    stage.world.age(PAUSES_MS[0] / 1000)
    send(opened.session, ids[:1])


def finish_rested(stage: Stage, ids: list[int]) -> None:
    """As the writer goes on after a worker died; every pause is over."""
    while any(fate.outcome in {"WAITING", "BOUND"} for fate in stage.world.ledger.fates(ids)):
        opened = stage.opening()
        stage.world.age(PAUSES_MS[-1] / 1000)
        send(opened.session, ids)
        opened.session.close("next")


def check(stage: Stage, ids: list[int]) -> None:
    journal = stage.journal()
    assert [nonce for nonce, _, _ in journal] == [501, 502, 503]
    assert sorted(change_id for _, _, change_id in journal) == ids
    recorded = stage.world.ledger.fates(ids)
    # Where a nonce had two bodies and the answer is lost with its process, neither is called applied (I14).
    unsure = {fate.change_id for fate in recorded if fate.outcome == "DEAD" and fate.unproven}
    assert {fate.outcome for fate in recorded if fate.change_id not in unsure} <= {"APPLIED"}
    stage.check_clean()


def test_killed_at_any_call_nothing_is_lost_and_nothing_sent_twice(
    mariadb_server: PrivateMariaDB, subtests: pytest.Subtests
) -> None:
    process = Process()
    with fresh_stage(mariadb_server) as stage:
        ids = prepare(stage)
        scenario(stage, ids, process)
        check(stage, ids)
    assert {"note_answer", "reconcile", "reserve", "write", "read"} <= set(process.calls)
    for when in WHEN:
        for number, name in enumerate(effects(process), start=1):
            with subtests.test(f"{when} call {number}, {name}"), fresh_stage(mariadb_server) as stage:
                ids = prepare(stage)
                doomed = killed_at(number, when)
                with contextlib.suppress(ProcessDied):
                    scenario(stage, ids, doomed)
                assert doomed.dead
                finish_rested(stage, ids)
                journal = {change_id for _, outcome, change_id in stage.journal() if outcome == "applied"}
                for fate in stage.world.ledger.fates(ids):
                    if fate.outcome == "DEAD" and fate.change_id not in journal:  # as an operator who has looked
                        assert stage.world.decide("retry", change_id=fate.change_id) == ""
                finish_rested(stage, ids)
                check(stage, ids)
