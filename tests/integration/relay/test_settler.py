"""The relay's settlement files: written by the active one, told of when they can't be, and retention waits for them."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy import limits
from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.relay import retention as settler_module
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import Duty, RelayPace
from oldhost_sync.relay.host_relay import HostRelay, relay_transactions
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.retention import STOPPED, Pruner, Settler
from oldhost_sync.relay.scheduler import Resyncer
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.settlement.settlement_file import SettlementError, SettlementFolder
from oldhost_sync.store.errors import DatabaseUnavailable, StatementTooSlow
from oldhost_sync.store.ledger.settlement import SettledDay
from oldhost_sync.store.retention import NONCES_KEPT, RetentionDays
from tests.integration.relay.listening import keep
from tests.integration.settlement.ledger_rows import ahead, days_ago, ended
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb

HANGS_SECONDS_MAX = 20.0
PACE = RelayPace(retention=RetentionDays(changes=7, ledger=7, alerts=7))


def settler_of(engine: Engine, folder: Path, owner: str = "one", pace: RelayPace = PACE) -> Settler:
    transactions = Transactions(engine)
    leadership = Leadership(transactions, HOST, owner, 5.0)
    return Settler(transactions, Transactions(engine), leadership, pace, SettlementFolder(folder, HOST), Conditions())


def pruner_of(engine: Engine, folder: Path | None) -> Pruner:
    transactions = Transactions(engine)
    files = None if folder is None else SettlementFolder(folder, HOST)
    leadership = Leadership(transactions, HOST, "one", 5.0)
    return Pruner(transactions, leadership, PACE, Conditions(), folder=files, files=Transactions(engine))


def settled(settler: Settler, now: float = 0.0) -> float:
    """Rounds until there is nothing more to do; returns the pause after the last."""
    keeper = ConditionKeeper(settler.transactions, settler.conditions)

    async def rounds() -> float:
        for _ in range(100):
            try:
                pause = await settler.run_once(now)
            finally:
                await keeper.run_once(now)
            if pause >= limits.RELAY_LEASE_SECONDS:
                return pause
        raise AssertionError("it does not come to its end")

    return asyncio.run(rounds())


def pruned(engine: Engine, folder: Path | None) -> None:
    asyncio.run(pruner_of(engine, folder).run_once(0.0))


def old_operation(engine: Engine, ago: int = 20) -> None:
    """A change of some days ago with its ledger row, too old to be compared with OldHost, and an old alert."""
    recorded(engine)
    change_sql(
        engine,
        f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6) - INTERVAL {ago} DAY, outcome = 'APPLIED', "
        "nonce = 1, fate_sequence = 1",
    )
    ended(engine, 1, ago=ago)
    change_sql(engine, "UPDATE nonce_requests SET change_id = (SELECT MIN(id) FROM outbox_events)")
    change_sql(engine, f"UPDATE nonce_ledger SET next_nonce = NULL, last_applied_nonce = {NONCES_KEPT + 2}")


def left(engine: Engine) -> dict[str, int]:
    tables = ("outbox_events", "nonce_requests", "nonce_requests_archive")
    return {name: len(rows(engine, f"SELECT 1 FROM {name}")) for name in tables}


def alert(engine: Engine) -> list[str]:
    return [row["message"] for row in rows(engine, f"SELECT message FROM alerts WHERE is_open AND kind = '{STOPPED}'")]


def test_the_relay_settles_all_days_that_are_over_and_releases_the_old_ones(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=10)
    assert settled(settler_of(engine, tmp_path)) == limits.SETTLEMENT_INTERVAL_SECONDS
    days = rows(engine, "SELECT day, released_at IS NOT NULL AS released FROM settled_days ORDER BY day")
    assert [each["day"] for each in days] == [days_ago(n) for n in range(10, 0, -1)]
    assert [each["day"] for each in days if each["released"]] == [days_ago(n) for n in range(10, 7 - ahead(), -1)]


def test_a_relay_that_is_not_active_settles_nothing(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=2)
    asyncio.run(settler_of(engine, tmp_path, "other").leadership.hold(0.0))
    assert settled(settler_of(engine, tmp_path)) == limits.RELAY_LEASE_SECONDS
    assert list(tmp_path.iterdir()) == []


def test_an_old_change_goes_with_its_ledger_row_once_its_day_is_settled_and_not_before(
    engine: Engine, tmp_path: Path
) -> None:
    old_operation(engine)
    pruned(engine, tmp_path)
    assert left(engine) == {"outbox_events": 1, "nonce_requests": 1, "nonce_requests_archive": 0}
    settled(settler_of(engine, tmp_path))
    pruned(engine, tmp_path)
    assert left(engine) == {"outbox_events": 0, "nonce_requests": 0, "nonce_requests_archive": 0}


def test_the_ledger_outlives_the_changes_by_its_own_setting(engine: Engine, tmp_path: Path) -> None:
    old_operation(engine)
    settler, pruner = settler_of(engine, tmp_path), pruner_of(engine, tmp_path)
    settler.pace = pruner.pace = RelayPace(retention=RetentionDays(changes=7, ledger=100))
    settled(settler)
    asyncio.run(pruner.run_once(0.0))
    assert left(engine) == {"outbox_events": 0, "nonce_requests": 0, "nonce_requests_archive": 1}


def test_without_settlement_files_changes_go_and_the_ledger_stays(engine: Engine) -> None:
    old_operation(engine, ago=4000)
    pruned(engine, None)
    assert left(engine) == {"outbox_events": 0, "nonce_requests": 0, "nonce_requests_archive": 1}


def test_a_key_of_a_forgotten_change_may_be_used_again(engine: Engine) -> None:
    old_operation(engine)
    pruned(engine, None)
    ended(engine, 1, ago=1)  # the same key as the one in the archive
    assert left(engine)["nonce_requests"] == 1


def test_nothing_is_pruned_and_people_are_told_while_the_folder_is_away(engine: Engine, tmp_path: Path) -> None:
    old_operation(engine)
    folder, away = tmp_path / "mounted", tmp_path / "away"
    folder.mkdir()
    settled(settler_of(engine, folder))
    folder.rename(away)
    settler = settler_of(engine, folder)
    assert settled(settler) == limits.SETTLEMENT_INTERVAL_SECONDS
    assert ["does not exist; mount it" in each for each in alert(engine)] == [True]
    pruned(engine, folder)
    assert left(engine)["outbox_events"] == 1
    away.rename(folder)
    settled(settler)
    assert alert(engine) == []
    pruned(engine, folder)
    assert left(engine)["outbox_events"] == 0


def test_people_are_told_in_words_that_the_folder_can_not_be_written_to(engine: Engine, tmp_path: Path) -> None:
    class ReadOnly(SettlementFolder):
        def require(self, last: SettledDay | None = None) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    settler = settler_of(engine, tmp_path)
    settler.folder = ReadOnly(tmp_path, HOST)
    settled(settler)
    assert alert(engine)[0].startswith(f"{tmp_path} can't be used: Read-only file system. ")


def test_people_are_told_of_what_nobody_foresaw_and_so_is_the_log(engine: Engine, tmp_path: Path) -> None:
    class Broken(SettlementFolder):
        def require(self, last: SettledDay | None = None) -> None:
            raise RecursionError("too deep")

    settler = settler_of(engine, tmp_path)
    settler.folder = Broken(tmp_path, HOST)
    with pytest.raises(RecursionError):
        settled(settler)
    assert "too deep" in alert(engine)[0]


def test_an_alert_stays_open_while_old_files_can_not_be_released(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise SettlementError("2026-01-01.jsonl is damaged")

    monkeypatch.setattr(settler_module, "release_next", damaged)
    settler = settler_of(engine, tmp_path)
    for _ in range(3):
        settled(settler)
    assert ["is damaged" in each for each in alert(engine)] == [True]
    assert rows(engine, "SELECT COUNT(*) AS alerts FROM alerts") == [{"alerts": 1}]


def test_people_are_told_when_mariadb_answers_but_does_not_let_a_day_be_settled(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object, **__: object) -> None:
        raise StatementTooSlow("statement took too long (MariaDB 1969)")

    monkeypatch.setattr(settler_module, "settle_next", too_slow)
    settler = settler_of(engine, tmp_path)
    for now, told in ((0, 0), (5, 0), (19, 0), (20, 1)):
        with pytest.raises(StatementTooSlow):
            settled(settler, now)
        assert len(alert(engine)) == told


def test_an_outage_of_the_whole_database_is_told_by_others(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("gone away")

    monkeypatch.setattr(settler_module, "settle_next", away)
    settler = settler_of(engine, tmp_path)
    for now in (0, 60):
        with pytest.raises(DatabaseUnavailable):
            settled(settler, now)
    assert alert(engine) == []


def test_people_are_told_when_a_day_waits_for_long(engine: Engine, tmp_path: Path) -> None:
    ended(engine, 1, ago=5)
    change_sql(engine, "UPDATE nonce_requests SET status = 'SENT', completed_at = NULL")
    ended(engine, 2, ago=5, counts=False)
    settled(settler_of(engine, tmp_path))
    assert ["have no end yet" in each for each in alert(engine)] == [True]


def test_operators_acts_go_after_years_but_for_pauses(engine: Engine) -> None:
    for action in ("pause", "resolve"):
        change_sql(
            engine,
            "INSERT INTO operator_audit (channel, host, action, operator, reason, created_at) VALUES "
            f"('api', '{HOST}', '{action}', 'anna', 'why', UTC_TIMESTAMP(6) - INTERVAL 3700 DAY)",
        )
    change_sql(
        engine,
        "INSERT INTO operator_audit (channel, host, action, operator, reason, created_at) VALUES "
        f"('api', '{HOST}', 'retry', 'anna', 'why', UTC_TIMESTAMP(6) - INTERVAL 3600 DAY)",
    )
    pruned(engine, None)
    assert [each["action"] for each in rows(engine, "SELECT action FROM operator_audit ORDER BY id")] == [
        "pause",
        "retry",
    ]


def duties_of(engine: Engine, folder: Path | None) -> dict[str, Duty]:
    async def signal(_: object) -> None:
        raise AssertionError("nothing is to be signalled")

    relay = HostRelay(relay_transactions(engine, engine), signal, HOST, "one", settlement_dir=folder)
    return {loop.duty.name: loop.duty for loop in relay.loops}


def test_a_hosts_relay_settles_where_a_folder_is_set_and_sends_states_again_everywhere(
    engine: Engine, tmp_path: Path
) -> None:
    assert {Settler.name, Resyncer.name} <= set(duties_of(engine, tmp_path))
    assert Settler.name not in duties_of(engine, None)


class Hanging:
    """A folder that does not answer until `let_go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()
        self.gave_up = False
        monkeypatch.setattr(SettlementFolder, "require", self._require)

    def _require(self, _last: object = None) -> None:
        self.reached.set()
        if not self.let_go.wait(HANGS_SECONDS_MAX):
            self.gave_up = True
            self.let_go.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    folder = Hanging(monkeypatch)
    yield folder
    folder.let_go.set()


@pytest.mark.parametrize("held_up", [Settler.name, Pruner.name])
def test_a_folder_that_hangs_holds_up_no_resync(engine: Engine, tmp_path: Path, hanging: Hanging, held_up: str) -> None:
    duties = duties_of(engine, tmp_path)

    async def resync_meanwhile() -> None:
        round_ = asyncio.create_task(duties[held_up].run_once(0.0))
        await asyncio.to_thread(hanging.reached.wait)
        await duties[Resyncer.name].run_once(0.0)
        hanging.let_go.set()
        await round_

    asyncio.run(resync_meanwhile())
    assert not hanging.gave_up


def test_people_are_told_while_a_folder_hangs(
    engine: Engine, tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler = settler_of(engine, tmp_path, pace=RelayPace(settlement_interval_s=0.01))
    found, told = settler.conditions.found, list[Fact]()

    def tell(host: str, kind: str, fact: Fact | None, now: float) -> None:
        found(host, kind, fact, now)
        if fact is not None:
            told.append(fact)
            hanging.let_go.set()

    monkeypatch.setattr(settler.conditions, "found", tell)
    asyncio.run(settler.run_once(0.0))
    asyncio.run(keep(engine, settler.conditions))
    assert "has not answered" in told[0].why
    assert told[0].at_once
    assert alert(engine) == []  # it answers again
