"""Sessions with a host that speaks frames and counts as OldHost does: the same promises by another wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.drivers.capabilities import Capabilities, Expects, Repeats
from oldhost_sync.drivers.frame.driver import FrameDriver
from oldhost_sync.policy.machine.events import OpeningPostponed
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.session.stage import LIMITS, Process, ProcessDied, Stage, outcomes, send

pytestmark = pytest.mark.mariadb


class FrameStage(Stage):
    driver = FrameDriver(Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED))


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB) -> Iterator[FrameStage]:
    config = Config(latency_ms=0, ban_seconds=900, first_nonce=501, dialect="frame")
    with mariadb_server.fresh_database() as engine, Simulator(config) as host:
        stage = FrameStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        yield stage
        stage.close()


def changes(stage: Stage, count: int) -> list[int]:
    return [stage.world.record(f"u{number}", payload={"n": number}) for number in range(count)]


def test_changes_are_applied_one_number_after_the_other(stage: FrameStage) -> None:
    ids = changes(stage, 3)
    stage.fault("reject", rule={"entity_id": "u1"})
    assert outcomes(send(stage.session(), ids)) == ["APPLIED", "DEAD", "APPLIED"]
    assert stage.journal() == [(501, "applied", ids[0]), (502, "rejected", ids[1]), (503, "applied", ids[2])]
    stage.check_clean()


@pytest.mark.parametrize("fault", ["drop_before", "drop_after", "apply_late", "cut_reply", "swallow"])
def test_a_lost_answer_is_found_out_by_the_count(stage: FrameStage, fault: str) -> None:
    (one,) = changes(stage, 1)
    session = stage.session()
    stage.fault(fault, next=1, **({"delay_ms": 20} if fault == "apply_late" else {}))
    send(session, [one])
    session.close("lost")
    opened = stage.opening()
    send(opened.session, [ref[0] for ref in opened.event.bound])
    assert outcomes(stage.world.ledger.fates([one])) == ["APPLIED"]
    assert stage.applied_ids() == [one]
    stage.check_clean()


@pytest.mark.parametrize(("call", "when"), [(c, w) for c in ("write", "read") for w in ("before", "after")])
def test_a_process_killed_at_the_wire_loses_and_doubles_nothing(stage: FrameStage, call: str, when: str) -> None:
    ids = changes(stage, 2)
    process = Process()

    def kill(name: str, seen: str) -> None:
        if (name, seen) == (call, when):
            process.die()

    process.hook = kill
    with pytest.raises(ProcessDied):
        send(stage.session(process), ids)
    opened = stage.opening()
    bound = [ref[0] for ref in opened.event.bound]
    send(opened.session, bound + [change for change in ids if change not in bound])
    assert outcomes(stage.world.ledger.fates(ids)) == ["APPLIED"] * 2
    assert stage.applied_ids() == ids
    stage.check_clean()


def test_a_logon_that_is_put_off_postpones_the_opening(stage: FrameStage) -> None:
    stage.fault("busy", on="logon")
    busy = stage.open()
    assert isinstance(busy, OpeningPostponed)
    assert busy.reason == "busy"
    stage.control(lambda controls: controls.switch_off())
    stage.control(lambda controls: controls.ban({"seconds": 60}))
    banned = stage.open()
    assert isinstance(banned, OpeningPostponed)
    assert (banned.reason, banned.wait_ms > 50_000) == ("ban", True)


def test_a_second_client_is_told_that_the_host_serves_another(stage: FrameStage) -> None:
    stage.session()
    outcome = stage.open()
    assert isinstance(outcome, OpeningPostponed)
    assert outcome.reason == "in-use"
