"""The lookout: the relays of one process share their looks at the outbox, and none misses what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from oldhost_sync.relay import Lookout, Relay
from tests.integration.relay.listening import Listener
from tests.integration.store.writing import recorded

pytestmark = pytest.mark.mariadb

HOSTS = [f"host-{number}" for number in range(5)]


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


def relays(engine: Engine, fresh_s: float) -> dict[str, tuple[Relay, Listener]]:
    lookout, listeners = Lookout(fresh_s), {host: Listener() for host in HOSTS}
    return {
        host: (Relay(engine, listener, host, owner="one", lookout=lookout), listener)
        for host, listener in listeners.items()
    }


def test_idle_hosts_of_one_process_cost_one_statement_a_round(engine: Engine) -> None:
    mine = relays(engine, 0.1)

    async def rounds() -> list[str]:
        for relay, _ in mine.values():
            await relay.run_once(0.0)
        with statements(engine) as asked:
            await asyncio.gather(*(relay.run_once(0.5) for relay, _ in mine.values()))
        return asked

    assert len(asyncio.run(rounds())) == 1


def test_each_host_gets_its_own_whoever_looked(engine: Engine) -> None:
    mine = relays(engine, 0.1)

    async def rounds() -> None:
        await asyncio.gather(*(relay.run_once(0.0) for relay, _ in mine.values()))
        for host in HOSTS[1:]:
            recorded(engine, entity_id=host, event_type="guest_locked_out", host=host)
        await asyncio.gather(*(relay.run_once(0.1) for relay, _ in mine.values()))

    asyncio.run(rounds())
    assert [len(listener.ids) for _, listener in mine.values()] == [0, 1, 1, 1, 1]


def test_what_an_old_look_did_not_see_is_seen_by_the_next(engine: Engine) -> None:
    relay, listener = relays(engine, 0.1)[HOSTS[0]]

    async def rounds() -> None:
        await relay.run_once(0.0)
        recorded(engine, entity_id="u", event_type="guest_locked_out", host=HOSTS[0])
        await relay.run_once(0.05)
        assert listener.ids == []
        await relay.run_once(0.1)

    asyncio.run(rounds())
    assert len(listener.ids) == 1


def test_an_ordinary_change_after_a_quiet_time_goes_with_the_next_look(engine: Engine) -> None:
    relay, listener = relays(engine, 0.0)[HOSTS[0]]

    async def rounds() -> None:
        await relay.run_once(0.0)
        await relay.run_once(1.0)
        recorded(engine, entity_id="u", host=HOSTS[0])
        await relay.run_once(1.1)

    asyncio.run(rounds())
    assert len(listener.ids) == 1
