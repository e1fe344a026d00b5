"""The shared poll: the duties of one process's hosts share their looks, and none misses what is there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.leadership import Leadership, renewals
from oldhost_sync.relay.scheduler import Scheduler
from oldhost_sync.relay.transactions import SharedPoll, Transactions
from oldhost_sync.store.errors import DatabaseUnavailable
from tests.integration.relay.listening import lease_holder, statements
from tests.integration.store.writing import change_sql, recorded, register, rows

Seen = frozenset[str]

pytestmark = pytest.mark.mariadb

HOSTS = [f"host-{number}" for number in range(5)]


def test_a_database_that_is_away_is_waited_for_once_by_all_hosts() -> None:
    shared = SharedPoll[Seen](0.1)
    asked, answer = 0, asyncio.Event()

    async def ask() -> Seen:
        nonlocal asked
        asked += 1
        await answer.wait()
        raise DatabaseUnavailable("no answer")

    async def rounds() -> list[Seen | BaseException]:
        asking = [asyncio.create_task(shared.poll(number / 5, ask)) for number in range(5)]
        await asyncio.sleep(0)
        answer.set()
        return await asyncio.gather(*asking, return_exceptions=True)

    assert all(isinstance(each, DatabaseUnavailable) for each in asyncio.run(rounds()))
    assert asked == 1


def test_after_a_failed_look_comes_another() -> None:
    shared = SharedPoll[Seen](0.1)

    async def fail() -> Seen:
        raise DatabaseUnavailable("no answer")

    async def ask() -> Seen:
        return frozenset({HOSTS[0]})

    async def rounds() -> Seen:
        with pytest.raises(DatabaseUnavailable):
            await shared.poll(0.0, fail)
        return await shared.poll(0.1, ask)

    assert HOSTS[0] in asyncio.run(rounds())


def leaderships(engine: Engine) -> dict[str, Leadership]:
    shared, transactions = renewals(3.0), Transactions(engine)
    return {host: Leadership(transactions, host, "one", 3.0, shared) for host in HOSTS}


def test_the_leases_of_all_hosts_of_a_process_are_renewed_together(engine: Engine) -> None:
    mine = leaderships(engine)

    async def rounds() -> list[str]:
        for leadership in mine.values():
            assert await leadership.hold(0.0)
        with statements(engine) as asked:
            await asyncio.gather(*(leadership.hold(1.0) for leadership in mine.values()))
        return asked

    assert [one.split()[0] for one in asyncio.run(rounds())] == ["UPDATE", "SELECT"]
    assert all(leadership.held(3.9) for leadership in mine.values())


def test_a_lease_that_another_relay_took_is_not_renewed_with_the_others(engine: Engine) -> None:
    mine = leaderships(engine)

    async def rounds() -> None:
        for leadership in mine.values():
            await leadership.hold(0.0)
        change_sql(engine, f"UPDATE relay_lease SET owner = 'two' WHERE host = '{HOSTS[2]}'")
        await asyncio.gather(*(leadership.hold(1.0) for leadership in mine.values()))

    asyncio.run(rounds())
    assert [leadership.held(1.5) for leadership in mine.values()] == [True, True, False, True, True]


def test_a_lease_that_is_offered_is_kept_meanwhile_but_not_renewed_with_the_others(engine: Engine) -> None:
    mine, transactions = leaderships(engine), Transactions(engine)
    standby = Leadership(transactions, HOSTS[2], "two", 3.0)

    async def rounds() -> bool:
        for leadership in mine.values():
            await leadership.hold(0.0)
        await mine[HOSTS[2]].offer(0.5)
        await asyncio.gather(*(leadership.hold(1.0) for leadership in mine.values()))
        assert mine[HOSTS[2]].held(2.4)
        return await standby.hold(1.5)

    assert asyncio.run(rounds())
    assert [asyncio.run(leadership.hold(2.5)) for leadership in mine.values()] == [True, True, False, True, True]


def asked_for_the_lease(engine: Engine) -> list[str]:
    """The hosts whose lease any relay may take."""
    free = "expires_at NOT BETWEEN UTC_TIMESTAMP(6) AND UTC_TIMESTAMP(6) + INTERVAL 3 SECOND"
    return [row["host"] for row in rows(engine, f"SELECT host FROM relay_lease WHERE {free}")]


def test_who_lost_the_lease_has_none_to_offer(engine: Engine) -> None:
    leadership, transactions = leaderships(engine)[HOSTS[0]], Transactions(engine)

    async def rounds() -> None:
        assert await leadership.hold(0.0)
        change_sql(engine, "UPDATE relay_lease SET owner = 'two'")
        assert not await leadership.offer(0.5)

    asyncio.run(rounds())
    assert not leadership.held(0.6)
    assert asked_for_the_lease(engine) == []
    assert not asyncio.run(Leadership(transactions, HOSTS[0], "three", 3.0).hold(0.7))


def test_a_lease_that_is_offered_and_not_taken_is_taken_back(engine: Engine) -> None:
    leadership = leaderships(engine)[HOSTS[0]]

    async def rounds() -> None:
        assert await leadership.hold(0.0)
        assert await leadership.offer(0.5)
        assert asked_for_the_lease(engine) == [HOSTS[0]]
        assert await leadership.hold(2.5)
        assert asked_for_the_lease(engine) == []

    asyncio.run(rounds())
    assert leadership.held(5.4)
    with engine.connect() as connection:
        assert lease_holder(connection) == "one"


def test_who_could_not_ask_for_the_lease_does_not_take_it_for_another_relay_s(engine: Engine) -> None:
    """A relay that is away from its database is not on standby."""
    transactions = Transactions(engine)
    leadership, run = Leadership(transactions, HOSTS[0], "one", 3.0), transactions.run

    async def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("no answer")

    async def rounds() -> bool:
        transactions.run = away  # type: ignore[method-assign,assignment]
        for now in (0.0, 0.5):
            with pytest.raises(DatabaseUnavailable):
                await leadership.hold(now)
        transactions.run = run  # type: ignore[method-assign]
        return await leadership.hold(1.0)

    assert asyncio.run(rounds())


def schedulers(engine: Engine) -> list[Scheduler]:
    shared, transactions = SharedPoll[frozenset[str]](0.1), Transactions(engine)
    shares = leaderships(engine).values()
    return [Scheduler(transactions, each, RelayPace(), poll=shared) for each in shares]


def test_who_gets_no_answer_about_the_lease_does_not_take_it_for_another_relay_s(engine: Engine) -> None:
    """As a relay whose MariaDB is frozen: its own lease has ended, and the try to renew it still waits."""
    transactions = Transactions(engine)
    leadership, run = Leadership(transactions, HOSTS[0], "one", 3.0), transactions.run
    asked, answer = asyncio.Event(), asyncio.Event()

    async def held_up(*args: Any, **options: Any) -> Any:
        asked.set()
        await answer.wait()
        return await run(*args, **options)

    async def act() -> bool:
        assert await leadership.hold(0.0)
        transactions.run = held_up  # type: ignore[method-assign]
        renewal = asyncio.create_task(leadership.hold(2.0))
        await asked.wait()
        assert await leadership.hold(2.9)  # still its own
        with pytest.raises(DatabaseUnavailable):
            await leadership.hold(4.0)
        answer.set()
        await renewal
        return await leadership.hold(4.5)

    assert asyncio.run(act())


def test_schedules_with_nothing_due_cost_one_statement_for_all_hosts(engine: Engine) -> None:
    mine = schedulers(engine)

    async def rounds() -> list[str]:
        await asyncio.gather(*(each.run_once(0.0) for each in mine))
        with statements(engine) as asked:
            await asyncio.gather(*(each.run_once(0.5) for each in mine))
        return asked

    assert len(asyncio.run(rounds())) == 1


def test_what_is_due_of_one_host_is_recorded_there(engine: Engine) -> None:
    mine = schedulers(engine)
    register(engine, HOSTS[1])
    recorded(engine, entity_id="u", host=HOSTS[1], not_before=datetime.now(UTC) + timedelta(hours=1))
    change_sql(engine, "UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    asyncio.run(_each(mine))
    assert [row["host"] for row in rows(engine, "SELECT host FROM outbox_events")] == [HOSTS[1]]


async def _each(mine: list[Scheduler]) -> None:
    for now in (0.0, 1.0):  # at first not all have their lease
        for scheduler in mine:
            await scheduler.run_once(now)
