"""The simulator as a process: its options, its ready line, its end."""

import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from oldhost_simulator import Config, process
from tests.signals_at_each_line import run_with_signals
from tests.simulator.client import AdminClient, Line, connect_when_free, operation, sync_bytes
from tests.simulator.process import ROOT, SimulatorProcess

pytestmark = pytest.mark.processes


def run(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "oldhost_simulator", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def test_help_tells_any_body_is_off_unless_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        process.main(["--help"])
    (option,) = re.findall(r"--any-body .*", re.sub(r"\s+", " ", capsys.readouterr().out))
    assert option.strip().endswith("(default: False)")


@pytest.mark.parametrize(("options", "status"), [((), 400), (("--any-body",), 200)])
def test_any_json_object_is_taken_only_when_asked_for(options: tuple[str, ...], status: int) -> None:
    with SimulatorProcess("--latency-ms", "1", *options) as process, Line(process.url) as line:
        assert line.sync(1, {"any": "thing"}).status == status


def test_it_says_where_it_is_and_serves_there() -> None:
    with SimulatorProcess("--latency-ms", "1", "--first-nonce", "501") as process, Line(process.url) as line:
        assert line.sync(501).status == 200
        assert AdminClient(process.admin_url).applied_nonces() == [501]


def test_it_serves_at_an_ipv6_address() -> None:
    with SimulatorProcess("--latency-ms", "1", "--host", "::1") as process, Line(process.url) as line:
        assert line.sync(1).status == 200
        assert AdminClient(process.admin_url).applied_nonces() == [1]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(signum: signal.Signals) -> None:
    with SimulatorProcess() as process, Line(process.url) as line:
        line.send(sync_bytes(1, operation()))
        assert process.end(signum) == 0


# Its ready line is flushed just before it waits for its end.
ENDED_WHILE_IT_BEGINS_TO_WAIT = """
from oldhost_simulator import process

class Output:
    write = lambda self, text: None
    def flush(self):
        sys.stdout = sys.__stdout__
        signal_at_each_line(sys._getframe(1))

sys.stdout = Output()
code = process.main(["--port", "0", "--admin-port", "0"])
no_more_signals()
sys.exit(code)
"""


def test_a_signal_at_any_line_of_its_wait_ends_it() -> None:
    assert run_with_signals(ENDED_WHILE_IT_BEGINS_TO_WAIT) == ""


def test_a_stopped_client_keeps_the_one_connection() -> None:
    client = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(s.recv(1))"
    with SimulatorProcess("--latency-ms", "1") as process:
        port = process.url.rpartition(":")[2]
        with subprocess.Popen([sys.executable, "-c", client, port], stdout=subprocess.DEVNULL) as stopped:
            admin = AdminClient(process.admin_url)
            while admin.stats()["connections"] == 0:
                assert stopped.poll() is None
            stopped.send_signal(signal.SIGSTOP)
            with Line(process.url) as line:
                assert line.receive().body == {"error": "connection_in_use"}
            stopped.kill()
        with connect_when_free(process.url) as line:
            assert line.sync(1).status == 200


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("--port", str(taken.getsockname()[1]), "--admin-port", "0")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "in use" in ended.stderr


def test_what_nobody_sets_is_as_the_protocol_has_it() -> None:
    given = process.config_of(process.parser().parse_args([]))
    assert (given.latency_ms, given.jitter_ms, given.ban_seconds, given.first_nonce) == (400, 0, 900, 1)
    assert given.check_operations
    assert Config() == replace(given, port=0, admin_port=0)


@pytest.mark.parametrize(
    "options", [("--latency-ms", "-1"), ("--ban-seconds", "nan"), ("--port", "70000"), ("--what",)]
)
def test_wrong_options_are_refused(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        process.main(options)
    assert ended.value.code == 2
    assert capsys.readouterr().err
