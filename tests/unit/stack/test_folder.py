"""The folder of `up`: one at a time, tokens that stay, secrets for its owner alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from oldhost_sync.settings import parse_api_tokens
from oldhost_sync.stack.folder import FolderInUse, StackFolder, as_api_tokens
from oldhost_sync.stack.machine import PortTaken, ProgramMissing, find_program, free_port, need_program, pick_port


def test_a_folder_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    first, second = StackFolder(tmp_path), StackFolder(tmp_path)
    with first, pytest.raises(FolderInUse, match=rf"process {os.getpid()}\); stop it"):
        second.__enter__()
    with second:
        pass


def test_development_tokens_stay_and_are_for_their_owner_alone(tmp_path: Path) -> None:
    with StackFolder(tmp_path) as folder:
        tokens = folder.development_tokens()
        assert folder.development_tokens() == tokens
    assert sorted(tokens) == ["app", "ops", "viewer"]
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_the_api_is_told_hashes_only(tmp_path: Path) -> None:
    tokens = StackFolder(tmp_path).development_tokens()
    known = as_api_tokens(tokens)
    assert parse_api_tokens(",".join(f"{one.name}:{one.role}:{one.sha256_hex}" for one in known)) == known
    assert not any(token in repr(known) for token in tokens.values())


def test_another_shell_reads_values_as_they_are(tmp_path: Path) -> None:
    path = StackFolder(tmp_path).write_environment({"SYNC_HOST": "it's $HOME"})
    assert path.read_text() == "SYNC_HOST='it'\"'\"'s $HOME'\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_taken_is_named_with_its_purpose() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1 is taken, but is needed for the API"):
            pick_port(port, "the API")


def test_port_0_takes_a_free_one_that_no_outgoing_connection_can_get() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(given.read_text().split()[0]) if given.exists() else 32_768
    assert all(1024 <= pick_port(0, "anything") < lowest for _ in range(20))


def test_a_free_port_is_none_that_somebody_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken, other = server.getsockname()[1], free_port()
        monkeypatch.setattr("random.sample", lambda _ports, _count: [taken, other])
        assert free_port() == other


def test_programs_beside_our_python_are_found_without_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_program("pytest") is not None
    with pytest.raises(ProgramMissing, match="no-such-program is not installed; do this"):
        need_program("no-such-program", install="do this")
