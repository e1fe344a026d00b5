"""Operations whose bodies a mapping makes: what OldHost gets, what is a no-op, and that bound bytes never change."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync import InvalidChange
from oldhost_sync.drivers.mapping import OLDHOST, Code, HostMapping
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.intake.resync import request_resync
from oldhost_sync.store.read.change_status import find_fate_of_id
from oldhost_sync.store.read.host_condition import read_other_mappings
from tests.conformance.mappings import LONGER, SHORT, UNIT_ID, install
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.offered_code import forget, offer
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.session.stage import LIMITS, Process, ProcessDied, Stage, outcomes, send

pytestmark = pytest.mark.mariadb
STATUS = "unit_status_changed"


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB) -> Iterator[Stage]:
    """With an OldHost that takes any body, and the mapping SHORT."""
    config = Config(latency_ms=0, ban_seconds=900, first_nonce=501, check_operations=False)
    with mariadb_server.fresh_database() as engine, Simulator(config) as oldhost:
        install(engine, SHORT)
        stage = Stage(MariaWorld(engine, LIMITS.settle_seconds), oldhost)
        yield stage
        stage.close()


def change(stage: Stage, status: str, entity_id: str = "u1") -> int:
    return stage.world.record(entity_id, STATUS, {"status": status, "by": "ada"})


def sent_by(process: Process) -> list[bytes]:
    return [request.partition(b"\r\n\r\n")[2] for request in process.requests]


def mapping_shown(stage: Stage, change_id: int) -> str | None:
    with stage.world.engine.connect() as connection:
        fate = find_fate_of_id(connection, HOST, change_id)
    assert fate is not None
    return fate.mapping


def test_the_body_is_exactly_what_the_mapping_says(stage: Stage) -> None:
    process = Process()
    one = change(stage, "Clean")
    assert outcomes(send(stage.session(process), [one])) == ["APPLIED"]
    assert sent_by(process) == [b'{"unit_id":"u1","status":"Clean"}']
    (entry,) = stage.control(lambda controls: controls.journal(0))
    assert (entry.outcome, entry.body) == ("applied", {"unit_id": "u1", "status": "Clean"})
    assert mapping_shown(stage, one) == "short/1"
    stage.check_clean()


def test_the_same_state_again_is_a_no_op_and_another_one_is_sent(stage: Stage) -> None:
    session = stage.session()
    assert outcomes(send(session, [change(stage, "Clean")])) == ["APPLIED"]
    again = stage.world.record("u1", STATUS, {"status": "Clean", "by": "ben"})  # `by` is not sent
    assert outcomes(send(session, [again])) == ["NO_OP"]
    assert outcomes(send(session, [change(stage, "Dirty")])) == ["APPLIED"]


@pytest.mark.parametrize("other", [LONGER, OLDHOST], ids=["longer", "preset"])
def test_by_another_mapping_the_same_state_is_no_no_op(stage: Stage, other: object) -> None:
    process = Process()
    session = stage.session(process)
    send(session, [change(stage, "Clean")])
    install(stage.world.engine, other)  # type: ignore[arg-type]
    again = change(stage, "Clean")
    assert outcomes(send(session, [again])) == ["APPLIED"]
    assert sent_by(process)[0] != sent_by(process)[1]
    assert mapping_shown(stage, again) in {"longer/1", "oldhost/1"}


@pytest.mark.parametrize("call", ["write", "read"])
def test_an_operation_in_doubt_keeps_its_bytes_when_the_mapping_changes(stage: Stage, call: str) -> None:
    """Killed before a byte is written, or before the answer is read: OldHost has not got it, or it has."""
    died, heir = Process(), Process()

    def kill(name: str, when: str) -> None:
        if (name, when) == (call, "before"):
            died.die()

    died.hook = kill
    doubtful = change(stage, "Clean")
    with pytest.raises(ProcessDied):
        send(stage.session(died), [doubtful])
    install(stage.world.engine, LONGER)
    session = stage.session(heir)
    send(session, [doubtful, change(stage, "Clean", "u2")])
    assert set(sent_by(died) + sent_by(heir)[:-1]) == {b'{"unit_id":"u1","status":"Clean"}'}
    assert json.loads(sent_by(heir)[-1]) == {"unit_id": "u2", "status": "Clean", "system": "desk"}
    assert mapping_shown(stage, doubtful) == "short/1"
    assert [fate.outcome for fate in stage.world.ledger.fates([doubtful])] == ["APPLIED"]
    stage.check_clean()


def test_a_mapping_that_changes_at_each_reservation_leaves_bytes_and_names_together(stage: Stage) -> None:
    process, mappings = Process(), cycle((LONGER, OLDHOST, SHORT))

    def change_it(name: str, when: str) -> None:
        if (name, when) == ("reserve", "before"):
            install(stage.world.engine, next(mappings))

    process.hook = change_it
    session = stage.session(process)
    for number in range(6):
        send(session, [change(stage, "Clean", f"u{number}-{unit}") for unit in range(3)])
    found = stage.world.read("SELECT body, mapping, status FROM nonce_requests ORDER BY nonce")
    assert sent_by(process) == [body for body, _, _ in found]
    fields = {"short/1": 2, "longer/1": 3, "oldhost/1": 9}
    assert [fields[mapping] for _, mapping, _ in found] == [len(json.loads(body)) for body, _, _ in found]
    assert {mapping for _, mapping, _ in found} == set(fields)
    assert {status for _, _, status in found} == {"APPLIED"}
    stage.check_clean()


def test_after_bytes_of_an_earlier_mapping_an_equal_change_is_sent(stage: Stage) -> None:
    """What they mean is not known any more."""
    died = Process()
    died.hook = lambda name, when: died.die() if (name, when) == ("write", "before") else None
    doubtful = change(stage, "Clean")
    with pytest.raises(ProcessDied):
        send(stage.session(died), [doubtful])
    install(stage.world.engine, LONGER)
    heir = Process()
    session = stage.session(heir)
    send(session, [doubtful])
    assert outcomes(send(session, [change(stage, "Clean")])) == ["APPLIED"]
    assert len(sent_by(heir)) == 2


def test_a_change_that_the_mapping_of_now_can_not_send_is_a_dead_letter_that_says_why(stage: Stage) -> None:
    install(stage.world.engine, OLDHOST)
    early = stage.world.record("u1", "checked_in", {"guest": "secret"})
    install(stage.world.engine, SHORT)
    (fate,) = send(stage.session(), [early]).fates
    assert (fate.outcome, fate.nonce) == ("DEAD", None)
    why = "mapping short/1 needs /payload/status for event type checked_in"
    assert fate.error == f"payload.status is missing: {why}"


def others(stage: Stage) -> int:
    with stage.world.engine.connect() as connection:
        return read_other_mappings(connection, HOST).states


def test_states_that_another_mapping_made_are_counted_until_they_are_sent_again(stage: Stage) -> None:
    session = stage.session()
    send(session, [change(stage, "Clean", unit) for unit in ("u1", "u2", "u3")])
    assert others(stage) == 0
    install(stage.world.engine, LONGER)
    assert others(stage) == 3
    send(session, [change(stage, "Clean", "u1")])
    assert others(stage) == 2
    install(stage.world.engine, SHORT)
    assert others(stage) == 1


def test_only_states_whose_rule_is_another_one_now_and_that_a_resync_sends_are_counted(stage: Stage) -> None:
    by_type = {"checked_in": None, "unit_details_changed": None, STATUS: None}
    install(stage.world.engine, HostMapping("types", "1", by_type))
    session = stage.session()
    changes = [stage.world.record("u1", event_type, {"name": event_type}) for event_type in by_type]
    assert outcomes(send(session, changes)) == ["APPLIED"] * 3
    install(stage.world.engine, HostMapping("types", "2", by_type | {STATUS: (UNIT_ID,), "checked_in": (UNIT_ID,)}))
    assert others(stage) == 1
    install(stage.world.engine, HostMapping("types", "3", {"checked_in": (UNIT_ID,)}))
    assert others(stage) == 2


@pytest.mark.parametrize(("unit_id", "left"), [(None, 0), ("u1", 1)])
def test_after_a_resync_of_all_none_is_counted(stage: Stage, unit_id: str | None, left: int) -> None:
    send(stage.session(), [change(stage, "Clean")])
    anna = at_the_terminal("anna")

    def resync() -> None:
        with stage.world.engine.begin() as connection:
            request_resync(connection, HOST, property_id=None, unit_id=unit_id, operator=anna, reason="new")
            connection.exec_driver_sql("UPDATE resyncs SET finished_at = UTC_TIMESTAMP(6)")

    resync()
    install(stage.world.engine, LONGER)
    assert others(stage) == 1, "that one was before"
    resync()
    assert others(stage) == left


def test_what_an_unconfirmed_operation_left_is_of_the_mapping_that_made_its_bytes(stage: Stage) -> None:
    died = Process()
    died.hook = lambda name, when: died.die() if (name, when) == ("read", "before") else None
    doubtful = change(stage, "Clean")
    with pytest.raises(ProcessDied):
        send(stage.session(died), [doubtful])
    install(stage.world.engine, LONGER)
    stage.session().close("the test has seen it")
    assert [fate.outcome for fate in stage.world.ledger.fates([doubtful])] == ["APPLIED"]
    assert others(stage) == 1


TAX = HostMapping("tax", "1", {"*": Code("invoice", "tax 1.2")})
ENCODE = "import json\ndef encode(change):\n    return json.dumps({'s': change.payload['status']}).encode()"


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Installs the code of TAX."""
    forget()
    yield lambda: offer(tmp_path, monkeypatch, ENCODE)
    forget()


def test_what_a_process_without_the_code_accepts_becomes_a_dead_letter_in_the_same_words(
    stage: Stage, offered: Callable[[], None]
) -> None:
    install(stage.world.engine, TAX)
    accepted = stage.world.record("u1", STATUS, {"by": "ada"})
    offered()
    with pytest.raises(InvalidChange) as refused:
        stage.world.record("u2", STATUS, {"by": "ada"})
    (fate,) = send(stage.session(), [accepted]).fates
    assert (fate.outcome, fate.error) == ("DEAD", str(refused.value))


def test_code_makes_the_bytes_and_an_equal_state_is_a_no_op(stage: Stage, offered: Callable[[], None]) -> None:
    install(stage.world.engine, TAX)
    offered()
    process = Process()
    session = stage.session(process)
    assert outcomes(send(session, [change(stage, "Clean")])) == ["APPLIED"]
    assert outcomes(send(session, [change(stage, "Clean")])) == ["NO_OP"]
    assert sent_by(process) == [b'{"s": "Clean"}']


def test_a_worker_that_lacks_the_code_ends_its_session_and_decides_nothing(
    stage: Stage, offered: Callable[[], None]
) -> None:
    session = stage.session()
    install(stage.world.engine, TAX)
    waiting = change(stage, "Clean")
    ended = send(session, [waiting])
    assert (ended.session_open, outcomes(ended)) == (False, ["WAITING"])
    assert "mapping tax/1 needs the entry point invoice" in ended.reason
    offered()
    assert outcomes(send(stage.session(), [waiting])) == ["APPLIED"]


def test_bound_bytes_are_sent_though_the_code_is_another_one_by_now(
    stage: Stage, offered: Callable[[], None], tmp_path: Path
) -> None:
    install(stage.world.engine, TAX)
    offered()
    died, heir = Process(), Process()
    died.hook = lambda name, when: died.die() if (name, when) == ("write", "before") else None
    doubtful = change(stage, "Clean")
    with pytest.raises(ProcessDied):
        send(stage.session(died), [doubtful])
    (tmp_path / "tax_code.py").write_text("def encode(change):\n    raise ValueError")
    sys.modules.pop("tax_code")
    forget()
    assert outcomes(send(stage.session(heir), [doubtful])) == ["APPLIED"]
    assert sent_by(heir) == [b'{"s": "Clean"}']
