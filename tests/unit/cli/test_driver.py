"""`driver check` and `driver measure` at the terminal."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from oldhost_simulator.admin import Controls
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.cli import main

SECRET = "s3cr3t-t0k3n"


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    file = tmp_path_factory.mktemp("authorization") / "line"
    file.write_text(f"Bearer {SECRET}\n")
    with Simulator(Config(latency_ms=1, ban_seconds=1, authorization_file=file)) as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hosts_file(simulator: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "auth").write_text(f"bearer {SECRET}\n")
    file = folder / "hosts.toml"
    file.write_text(f'[hosts.test]\nurl = "{simulator.url}"\nauth_file = "auth"\nrequest_timeout_seconds = 0.5\n')
    monkeypatch.setenv("SYNC_HOSTS_FILE", str(file))
    monkeypatch.setenv("SYNC_HOST", "test")
    return file


class Terminal:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, typed: str = "") -> tuple[int, str]:
        """The exit code of `oldhost-sync driver …`, and all that it printed."""
        self._monkeypatch.setattr("sys.stdin", StringIO(typed))
        code = main.run(["driver", *arguments])
        shown = self._capsys.readouterr()
        return code, shown.out + shown.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def test_check_uses_the_settings_of_the_host_and_shows_no_secret(run: Terminal, hosts_file: Path) -> None:
    code, told = run("check", "--json")
    assert code == 0
    assert {finding["verdict"] for finding in json.loads(told)} == {"holds", "not checked"}
    assert SECRET not in told


def test_another_address_does_not_get_our_credentials(run: Terminal, hosts_file: Path, simulator: Simulator) -> None:
    code, told = run("check", f"{simulator.url}/other")
    assert code == 1
    assert "refuses our credentials" in told
    assert "1 claim of the driver is wrong" in told


def test_a_host_that_is_away_says_what_to_do(run: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, told = run("check", f"http://127.0.0.1:{port}")
    assert code == 1
    assert "can't be reached" in told
    assert "Check its address, and whether it is up." in told


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("check",), "has no address: SYNC_HOSTS_FILE names no file. Give it: `oldhost-sync driver check tcp://"),
        (("check", "tcp://h:1"), "begins with http:// or https://. Another driver is named by --driver."),
        (("check", "http://user:secret@h"), "without user and password"),
        (("check", "http://h", "--driver", "telex"), "there is no driver telex"),
        (("check", "http://h", "--option", "expected=used"), "there is no such option"),
        (("check", "http://h", "--option", "expected"), "KEY=VALUE"),
        (("measure", "http://h"), "say --test-host"),
        (("measure", "http://h", "--test-host", "--payload", "{"), "the payload can't be used"),
    ],
)
def test_what_is_wrong_with_the_command_is_told(run: Terminal, arguments: tuple[str, ...], why: str) -> None:
    code, told = run(*arguments)
    assert code == 2
    assert why in told
    assert "secret" not in told


def test_measure_writes_nothing_before_the_hosts_name_is_typed(
    run: Terminal, hosts_file: Path, simulator: Simulator
) -> None:
    code, told = run("measure", "--test-host", typed="yes\n")
    assert code == 2
    assert "nothing was written" in told
    assert simulator.control(Controls.stats)["applied"] == 0


def test_measure_writes_settings_and_a_simulator(
    run: Terminal, hosts_file: Path, simulator: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    typed = simulator.url.removeprefix("http://")
    code, told = run("measure", "--test-host", "--folder", "out", typed=f"{typed}\n")
    assert code == 0
    assert (folder / "out" / "test.toml").read_text().startswith(f'[hosts.test]\nurl = "{simulator.url}"\n')
    assert (folder / "out" / "test-simulator.sh").read_text().startswith("oldhost-sync simulator --latency-ms ")
    assert SECRET not in told
