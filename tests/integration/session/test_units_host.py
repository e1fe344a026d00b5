"""A host with an API of its own, reached without code: paths, a signature, answers by patterns, a number in the path.

The options and the mapping are those of the files that an operator writes (`tests/foreign_host/units_host.py`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.drivers.capabilities import Expects
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.http.driver import make_driver
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.mapping_file import read_mapping
from oldhost_sync.policy.machine.events import OpeningPostponed
from tests.conformance.mappings import install
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.foreign_host.answer import Answer, Effect, page
from tests.foreign_host.units_host import KEY, OPTIONS, UnitsHost, written
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import LIMITS, Process, ProcessDied, outcomes, send

pytestmark = pytest.mark.mariadb

STATUS = "unit_status_changed"


class UnitsStage(ForeignStage):
    host: UnitsHost
    driver: Driver = make_driver(tomllib.loads(OPTIONS))


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB, tmp_path: Path) -> Iterator[UnitsStage]:
    mapping, key = written(tmp_path)
    with mariadb_server.fresh_database() as engine, UnitsHost() as host:
        install(engine, read_mapping(mapping))
        stage = UnitsStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        stage.access = Access(sign_key=key)
        yield stage
        stage.close()
        stage.check_clean()


def status(stage: UnitsStage, unit: str, status: str = "Clean") -> int:
    return stage.world.record(unit, STATUS, {"status": status})


def test_each_change_is_applied_once_in_order_at_its_own_path(stage: UnitsStage) -> None:
    ids = [
        status(stage, "u1"),
        stage.world.record("u2", "booking_created", {"guest": 1}),
        status(stage, "a/b ü", "Dirty"),
    ]
    assert outcomes(send(stage.session(), ids)) == ["APPLIED"] * 3
    assert [(request.method, request.target) for request in stage.host.requests if request.is_operation] == [
        ("PUT", "/v2/units/u1/status/501"),
        ("POST", "/v2/units/u2/events/502"),
        ("PUT", "/v2/units/a%2Fb%20%C3%BC/status/503"),
    ]
    assert stage.applied_ids() == ids
    assert json.loads(stage.host.ended[0].body) == {"status": "Clean", "ref": ids[0]}
    assert all("x-nonce" not in request.headers for request in stage.host.requests)
    stage.check_clean()


def test_an_equal_state_is_a_no_op_and_another_units_is_not(stage: UnitsStage) -> None:
    session = stage.session()
    assert outcomes(send(session, [status(stage, "u1")])) == ["APPLIED"]
    assert outcomes(send(session, [status(stage, "u1")])) == ["NO_OP"]
    assert outcomes(send(session, [status(stage, "u2")])) == ["APPLIED"]


@pytest.mark.parametrize("call", ["write", "read"])
def test_after_a_kill_the_same_bytes_go_to_the_same_path_though_the_mapping_has_changed(
    stage: UnitsStage, tmp_path: Path, call: str
) -> None:
    died, heir = Process(), Process()

    def kill(name: str, when: str) -> None:
        if (name, when) == (call, "before"):
            died.die()

    died.hook = kill
    doubtful = status(stage, "u1")
    with pytest.raises(ProcessDied):
        send(stage.session(died), [doubtful])
    other = 'name = "elsewhere"\n[rules."*"]\npath = "/elsewhere"\nfields = { ref = "/change_id" }\n'
    (tmp_path / "other.toml").write_text(other)
    install(stage.world.engine, read_mapping(tmp_path / "other.toml"))
    send(stage.session(heir), [doubtful, status(stage, "u2")])
    targets = [request.target for request in stage.host.requests if request.is_operation]
    assert targets[:-1] == ["/v2/units/u1/status/501"]
    assert targets[-1] == "/v2/elsewhere/502"
    assert stage.applied_ids()[0] == doubtful
    assert len(set(stage.applied_ids())) == len(stage.applied_ids()) == 2
    stage.check_clean()


def test_a_lost_answer_is_decided_by_the_hosts_own_question(stage: UnitsStage) -> None:
    change_id = status(stage, "u1")
    stage.host.operations.append(lambda request: replace(stage.host.by_the_protocol(request), cut=20))
    assert outcomes(send(stage.session(), [change_id])) == ["BOUND"]
    assert [fate.outcome for fate in stage.opening().event.fates] == ["APPLIED"]
    stage.check_clean()


def test_a_rejection_is_a_dead_letter_in_the_hosts_words_and_the_next_one_goes_on(stage: UnitsStage) -> None:
    no = Answer(422, {"ok": False, "why": "no such unit"}, effect=Effect.REJECTS)
    stage.host.operations.append(no)
    ids = [status(stage, "u1"), status(stage, "u2")]
    assert outcomes(send(stage.session(), ids)) == ["DEAD", "APPLIED"]
    assert stage.world.outcome(ids[0])[0] == "DEAD"
    assert len(stage.host.connected_at) == 1, "its number is used, as the options say: no question is needed"
    stage.check_clean()


@pytest.mark.parametrize(
    ("answer", "fate", "refusal"),
    [
        (Answer(409, {"code": "AHEAD", "next": 501}), "WAITING", "gap"),
        (Answer(423, {"wait": 60}), "WAITING", "banned"),
        (Answer(200, {"ok": True, "seq": 7}), "BOUND", "unlisted"),
        (Answer(200, {"ok": 1, "seq": 501}), "BOUND", "unlisted"),
        (Answer(202, {"ok": True, "seq": 501}), "BOUND", "unlisted"),
        (Answer(409, {"code": "OTHER"}), "BOUND", "unlisted"),
        (page(200), "BOUND", "unlisted"),
        (Answer(307, {"ok": True, "seq": 501}), "BOUND", "unlisted"),
    ],
)
def test_only_what_a_pattern_says_is_believed(stage: UnitsStage, answer: Answer, fate: str, refusal: str) -> None:
    stage.host.operations.append(answer)
    sent = send(stage.session(), [status(stage, "u1")])
    assert sent.refusal == refusal
    assert outcomes(sent) in ([fate], ["BOUND"])
    stage.check_clean()


def test_a_replay_of_a_first_send_halts(stage: UnitsStage) -> None:
    stage.host.operations.append(Answer(409, {"code": "SEEN", "next": 502}))
    assert "another client wrote to OldHost" in send(stage.session(), [status(stage, "u1")]).halted


def test_a_host_that_is_busy_is_asked_again_with_a_new_signature(stage: UnitsStage) -> None:
    stage.host.operations.append(Answer(503, {"wait": 0}))
    assert outcomes(send(stage.session(), [status(stage, "u1")])) == ["APPLIED"]
    stage.check_clean()


def test_a_wrong_key_is_named_and_a_renewed_one_is_used_without_a_restart(stage: UnitsStage) -> None:
    assert stage.access.sign_key is not None
    stage.access.sign_key.write_text("another-key")
    outcome = stage.open()
    assert isinstance(outcome, OpeningPostponed)
    assert (outcome.reason, "status 401" in outcome.message) == ("credentials", True)
    stage.access.sign_key.write_bytes(KEY)
    assert outcomes(send(stage.session(), [status(stage, "u1")])) == ["APPLIED"]


def test_a_key_that_can_not_be_read_is_named_and_nothing_is_sent_unsigned(stage: UnitsStage) -> None:
    assert stage.access.sign_key is not None
    stage.access.sign_key.write_text("")
    outcome = stage.open()
    assert isinstance(outcome, OpeningPostponed)
    assert (outcome.reason, "sign.key" in outcome.message) == ("credentials", True)
    assert stage.host.requests == []
    stage.access.sign_key.write_bytes(KEY)


def test_a_host_that_can_not_be_asked_is_not_asked_what_a_rejection_did(stage: UnitsStage) -> None:
    stage.session().close("its count is known")
    lines = [line for line in OPTIONS.splitlines() if "question" not in line and 'is = "expected"' not in line]
    stage.driver = make_driver(tomllib.loads("\n".join(lines)) | {"rejection_uses": "says"})
    assert stage.driver.capabilities.expected is Expects.NEVER
    asked = len(stage.host.requests)
    stage.host.operations.append(Answer(422, {"ok": False, "why": "no"}, effect=Effect.REJECTS))
    assert outcomes(send(stage.session(), [status(stage, "u1"), status(stage, "u2")])) == ["DEAD", "APPLIED"]
    assert all(request.is_operation for request in stage.host.requests[asked:])
    stage.check_clean()
