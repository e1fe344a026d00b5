"""What OldHost remembers over a restart, in order or by kill -9."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator import Config, Simulator
from oldhost_simulator.state_file import StateFileError
from tests.simulator.client import AdminClient, Line, connect_when_free, operation, sync_bytes
from tests.simulator.process import SimulatorProcess


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "oldhost.jsonl"


def everything(simulator: Simulator) -> tuple[Any, ...]:
    admin = AdminClient(simulator.admin_url)
    stats = admin.stats()
    counts = tuple(stats[name] for name in ("expected_nonce", "gaps", "replays", "bans", "banned_until"))
    return admin.journal(), admin.get("/records"), admin.get("/incidents"), counts


def test_a_restart_keeps_nonce_records_journal_and_ban(state_file: Path) -> None:
    with Simulator(Config(latency_ms=0, state_file=state_file, first_nonce=501)) as first, Line(first.url) as line:
        admin = AdminClient(first.admin_url)
        line.sync(501, operation(1, status="Dirty"))
        line.sync(502, operation(2, status="Clean"))
        line.sync(700)
        admin.post("/actions/foreign-write")
        admin.post("/actions/restore", {"expected_nonce": 502})
        line.sync(501)
        kept = everything(first)
    with Simulator(Config(latency_ms=0, state_file=state_file, first_nonce=1)) as second:
        assert everything(second) == kept
        with Line(second.url) as line:
            assert line.sync(502).status == 403
            AdminClient(second.admin_url).post("/actions/unban")
            assert line.sync(502).status == 200


def test_an_unfinished_line_is_cut_off(state_file: Path) -> None:
    with Simulator(Config(latency_ms=0, state_file=state_file)) as first, Line(first.url) as line:
        line.sync(1)
    with state_file.open("ab") as file:
        file.write(b'{"outcome":"applied","nonce":2,"expec')
    with Simulator(Config(latency_ms=0, state_file=state_file)) as second, Line(second.url) as line:
        assert line.sync(2).status == 200
    with Simulator(Config(latency_ms=0, state_file=state_file)) as third:
        assert AdminClient(third.admin_url).applied_nonces() == [1, 2]


def test_two_simulators_cannot_share_a_state_file(state_file: Path) -> None:
    with Simulator(Config(state_file=state_file)), pytest.raises(StateFileError, match="in use"):
        Simulator(Config(state_file=state_file)).start()


@pytest.mark.parametrize(
    "content", ["hello\n", '{"oldhost_state": 99}\n', "[]\n", '{"oldhost_state":1,"first_nonce":1}\n{}\n']
)
def test_a_file_that_is_no_state_file_is_refused_and_left_alone(state_file: Path, content: str) -> None:
    state_file.parent.mkdir()
    state_file.write_text(content)
    with pytest.raises(StateFileError):
        Simulator(Config(state_file=state_file)).start()
    assert state_file.read_text() == content


@pytest.mark.processes
def test_a_killed_host_still_knows_all_that_it_answered(state_file: Path) -> None:
    options = ("--latency-ms", "0", "--state-file", str(state_file))
    answered = 0
    with SimulatorProcess(*options) as first, Line(first.url) as line:
        for nonce in range(1, 301):
            assert line.sync(nonce, operation(nonce)).status == 200
            answered = nonce
        line.send(b"POST /oldhost/sync HTTP/1.1\r\n")
        first.end(signal.SIGKILL)
    with SimulatorProcess(*options) as second, connect_when_free(second.url) as line:
        assert line.expected_nonce() == answered + 1
        admin = AdminClient(second.admin_url)
        assert admin.applied_nonces() == list(range(1, answered + 1))
        assert admin.get("/records")["records"][0]["nonce"] == answered


@pytest.mark.processes
def test_nonce_and_journal_agree_whenever_the_host_is_killed(state_file: Path) -> None:
    options = ("--latency-ms", "0", "--state-file", str(state_file))
    nonce = 1
    for kill_after in (1, 7, 40):
        with SimulatorProcess(*options) as process, connect_when_free(process.url) as line:
            assert line.expected_nonce() in {nonce, nonce + 1}
            nonce = line.expected_nonce()
            for _ in range(kill_after):
                assert line.sync(nonce).status == 200
                nonce += 1
            line.send(sync_bytes(nonce, operation(nonce)))
            os.kill(process.pid, signal.SIGKILL)
    with Simulator(Config(latency_ms=0, state_file=state_file)) as simulator:
        admin = AdminClient(simulator.admin_url)
        nonces = admin.applied_nonces()
        assert nonces == list(range(1, len(nonces) + 1))
        assert admin.stats()["expected_nonce"] == len(nonces) + 1
