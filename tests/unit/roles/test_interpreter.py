"""Each role's process shares its interpreter as `oldhost_sync/roles/process.py` says."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from oldhost_sync.roles import api, process, relay, worker
from oldhost_sync.settings import Settings

ROLES: dict[str, Callable[[Settings], object]] = {
    "api": api.run,
    "relay": lambda settings: asyncio.run(relay.run(settings)),
    "worker": lambda settings: asyncio.run(worker.run(settings)),
}


class Shared(Exception):
    """The role has asked for it."""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_shares_its_interpreter_before_anything_else(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def share() -> None:
        raise Shared

    monkeypatch.setattr(f"oldhost_sync.roles.{role}.share_among_threads", share)
    with pytest.raises(Shared):
        ROLES[role](Settings())


def test_a_thread_that_was_answered_waits_for_half_a_millisecond() -> None:
    process.share_among_threads()
    assert sys.getswitchinterval() == pytest.approx(process.SWITCH_SECONDS)


def test_garbage_is_looked_for_at_the_thresholds_named() -> None:
    process.hold_many_objects()
    assert gc.get_threshold() == process.COLLECTOR_THRESHOLDS


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_has_loaded_is_left_out_of_later_collections(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole collection of it took a tenth of a second, and every write waited."""

    def begin(*_: object, **__: object) -> None:
        raise Shared

    first_work = {"api": "ServerOfStreams.run", "relay": "create_engine", "worker": "create_engine"}
    monkeypatch.setattr(f"oldhost_sync.roles.{role}.{first_work[role]}", begin)
    monkeypatch.setattr(api, "_check_database", lambda settings: None)
    with pytest.raises(Shared):
        ROLES[role](
            Settings(database_url="mysql+pymysql://nobody@127.0.0.1:1/nothing", oldhost_url="http://127.0.0.1:1")
        )
    assert gc.get_freeze_count() > 10_000
