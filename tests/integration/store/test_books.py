"""The books by what is kept are those that counting everything gives, whatever happened since they were counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.drivers.events import Rejected
from oldhost_sync.oldhost.ledger import Answered, Count, Evidence, Reserved
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store import retention
from oldhost_sync.store.intake.change_recorder import record_refused
from oldhost_sync.store.outbox import books
from oldhost_sync.store.outbox.pending_fates import write_pending_fates
from oldhost_sync.store.read import late_emergencies
from oldhost_sync.store.read.change_feed import number_fates
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.ledger_world import applied
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import before, change_sql, rows

pytestmark = pytest.mark.mariadb

BANNED = Count(None, "it bans us for 600 s more")


class Host:
    """A host with its ledger, its relay, its operators and its OldHost."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.world = MariaWorld(engine, 0.0)
        self.world.classify("status", PriorityClass.LWW)
        self.epoch = self.world.ledger.take_over("first").epoch
        self.world.ledger.adopt_first(self.epoch, 1)

    def run(self, fn: Callable[[Connection], Any]) -> Any:
        return run_in_transaction(self.engine, fn)

    def ids(self, which: str) -> list[int]:
        return [row[0] for row in self.world.read(f"SELECT {which}")]

    # ---------------------------------------------------------------------------------------------- changes and fates

    def send(self, change_id: int, *, rejected: bool = False, lost: bool = False) -> None:
        ledger = self.world.ledger
        (entry,) = ledger.reserve(self.epoch, [change_id])
        if not isinstance(entry, Reserved):
            return
        ledger.advance(self.epoch, None, entry)
        if lost:
            self.epoch = ledger.take_over("next").epoch
            ledger.reconcile(self.epoch, Evidence(entry.nonce + 1))
            return
        answer = Answered(entry, Rejected("no such unit", consumed=True)) if rejected else applied(entry)
        ledger.advance(self.epoch, answer, None)

    def ended(self, *, unit: str = "u1") -> int:
        change_id = self.world.record(unit)
        self.send(change_id)
        return change_id

    def refused(self, key: str) -> None:
        named = {"host": HOST, "idempotency_key": key, "reason": "no entity", "source": "test"}
        self.run(lambda connection: record_refused(connection, change={}, **named))

    def resolve(self, mode: str, expected: int, *, later: bool = False) -> None:
        """OldHost expects `expected` again, and an operator decides."""
        ledger = self.world.ledger
        self.epoch = ledger.take_over("next").epoch
        if ledger.reconcile(self.epoch, Evidence(expected)).halted is not None:
            assert self.world.decide("resolve", mode=mode, count=BANNED if later else Count(expected)) == ""
        if later:
            self.relay()
            self.check()
        self.epoch = ledger.take_over("after").epoch
        assert ledger.reconcile(self.epoch, Evidence(expected)).halted is None

    # ------------------------------------------------------------------------------------------------------ the relay

    def relay(self) -> None:
        (newest,) = self.ids("fate_sequence FROM nonce_ledger")
        self.run(lambda connection: late_emergencies.take_fates(connection, HOST, newest))

    def older_relay(self) -> None:
        change_sql(self.engine, "UPDATE counted_fates SET sequence = (SELECT fate_sequence FROM nonce_ledger)")

    def check(self) -> int:
        found: int = self.run(lambda connection: books.check_books(connection, HOST))
        return found

    def forget(self, *change_ids: int, rows_max: int = 100) -> None:
        listed = ", ".join(map(str, (0, *change_ids)))
        ago = "- INTERVAL 100 DAY WHERE"
        change_sql(self.engine, f"UPDATE outbox_events SET processed_at = processed_at {ago} id IN ({listed})")
        change_sql(self.engine, f"UPDATE nonce_requests SET completed_at = completed_at {ago} change_id IN ({listed})")
        self.run(lambda connection: retention.prune(connection, HOST, before(connection), rows=rows_max))

    # ---------------------------------------------------------------------------------------------------------- books

    def kept(self) -> books.Books | None:
        found: books.Books | None = self.run(lambda connection: books.kept_books(connection, HOST))
        return found

    def whole(self) -> books.Books:
        found: books.Books = self.run(lambda connection: books.count_books(connection, HOST))
        return found


@pytest.fixture
def host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Its relay has counted once; nothing is kept back by its last nonces."""
    monkeypatch.setattr(retention, "NONCES_KEPT", 0)
    host = Host(engine)
    host.relay()
    host.check()
    return host


@contextmanager
def held(engine: Engine, statement: str) -> Iterator[None]:
    """An application's transaction that holds what `statement` locks."""
    with engine.connect() as application:
        application.exec_driver_sql(statement)
        yield
        application.rollback()


def test_all_is_counted_until_the_relay_has_counted(engine: Engine) -> None:
    host = Host(engine)
    change_sql(engine, f"INSERT INTO counted_fates (host, sequence) VALUES ('{HOST}', 0)")  # as the release before did
    host.ended()
    assert host.kept() is None
    assert host.run(lambda connection: books.read_books(connection, HOST)) == host.whole()
    assert host.check() == 0
    assert host.kept() == host.whole()


@pytest.mark.parametrize("resolved", [False, True])
def test_a_new_host_s_books_are_kept_from_the_relay_s_first_look_on(engine: Engine, *, resolved: bool) -> None:
    host = Host(engine)
    if resolved:
        host.world.ledger.halt(host.epoch, "a foreign write")
        host.resolve("adopt", 1)
    host.relay()
    host.ended()
    assert host.kept() == (None if resolved else host.whole())


def test_where_a_relay_begins_among_fates_all_is_counted_until_the_next_check(engine: Engine) -> None:
    host = Host(engine)
    host.ended()
    host.relay()
    assert host.kept() is None
    assert host.check() == 0
    assert host.kept() == host.whole()


def test_fates_that_the_cursor_has_not_passed_are_in_the_books(host: Host) -> None:
    host.ended()
    assert host.kept() == host.whole()
    assert host.whole().applied == 1


def test_a_fate_that_is_no_news_is_counted(host: Host) -> None:
    """The relay numbers late what a process of the release before has decided."""
    host.refused("k")
    change_sql(host.engine, "UPDATE outbox_events SET processed_at = processed_at - INTERVAL 9 DAY")
    assert host.run(lambda connection: number_fates(connection, HOST, 10)) == 1
    host.relay()
    assert rows(host.engine, "SELECT refused FROM counted_fates") == [{"refused": 1}]
    assert host.kept() == host.whole()


def test_where_a_relay_of_the_release_before_moved_the_cursor_all_is_counted_until_the_next_check(host: Host) -> None:
    host.ended()
    host.older_relay()
    assert host.kept() is None
    host.ended()
    host.relay()
    assert host.kept() is None
    assert host.check() == 0
    assert host.kept() == host.whole()


@pytest.mark.parametrize("mode", ["resend", "adopt"])
def test_after_a_resolve_all_is_counted_until_the_next_check(host: Host, mode: str) -> None:
    for unit in ("u1", "u2"):
        host.ended(unit=unit)
    host.relay()
    host.resolve(mode, 2)
    assert host.kept() is None
    assert host.check() == 0
    assert host.kept() == host.whole()
    assert host.whole().applied == (2 if mode == "adopt" else 1)


def test_a_decision_that_waits_to_be_carried_out_may_take_fates_back_after_a_check(host: Host) -> None:
    host.ended()
    host.relay()
    host.resolve("resend", 1, later=True)
    assert host.kept() is None
    assert host.whole().applied == 0


def test_what_is_forgotten_is_counted_no_more(host: Host) -> None:
    counted = host.ended(unit="u1")
    host.relay()
    beyond_the_cursor = host.ended(unit="u2")
    host.ended(unit="u3")
    host.forget(counted, beyond_the_cursor)
    assert host.whole().applied == 1
    assert host.kept() == host.whole()


def test_two_that_forget_at_once_forget_each_change_once_and_do_not_wait(
    host: Host, mariadb_server: PrivateMariaDB
) -> None:
    change_id = host.ended()
    host.ended(unit="u2")
    host.relay()
    change_sql(host.engine, "DELETE FROM nonce_requests")
    change_sql(host.engine, f"UPDATE outbox_events SET processed_at = '2020-01-01' WHERE id = {change_id}")
    with host.engine.connect() as one, host.engine.connect() as other, mariadb_server.nobody_waits():
        gone = [retention.prune(each, HOST, before(each), rows=10).gone for each in (one, other)]
        one.commit()
        other.commit()
    assert gone == [1, 0]
    assert host.kept() == host.whole()


def test_what_somebody_deletes_by_hand_is_told_once_and_set_right(host: Host) -> None:
    change_id = host.ended()
    host.relay()
    change_sql(host.engine, f"DELETE FROM outbox_events WHERE id = {change_id}")
    assert [host.check(), host.check()] == [1, 0]
    assert host.kept() == host.whole()


def test_counting_anew_waits_for_no_application_and_locks_one_row(host: Host, mariadb_server: PrivateMariaDB) -> None:
    host.ended()
    host.older_relay()
    everything = held(host.engine, "SELECT id FROM outbox_events WHERE source = 'nobody' FOR UPDATE")
    with everything, mariadb_server.nobody_waits(), host.engine.connect() as connection:
        books.check_books(connection, HOST)
        locked = connection.exec_driver_sql(
            "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()"
        ).scalar_one()
        connection.commit()
    assert locked == 1
    assert host.kept() == host.whole()


def test_a_look_at_the_fates_counts_them_without_a_statement_more(host: Host) -> None:
    asked: list[str] = []
    with host.engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda *call: asked.append(call[2].split()[0]))
        for newest in (0, 1):
            host.ended(unit=f"u{newest}")
            late_emergencies.take_fates(connection, HOST, newest)
    assert asked == ["SELECT", "SELECT", "SELECT", "UPDATE"]


def test_the_books_are_one_statement(host: Host) -> None:
    """So all numbers are of one moment."""
    asked: list[str] = []
    with host.engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda *call: asked.append(call[2]))
        books.read_books(connection, HOST)
        books.count_books(connection, HOST)
    assert len(asked) == 2


# --------------------------------------------------------------------------------------------------- whatever happens


class Play:
    """Steps by chance. After each the kept books are those of counting, or nobody relies on them."""

    def __init__(self, host: Host, seed: int) -> None:
        self.host, self.chance = host, random.Random(seed)
        self.relied_on = 0

    def play(self, steps: int) -> None:
        kinds = {
            self.accept: 30, self.send: 30, self.send_past_a_lock: 6, self.operator: 8, self.went_back: 3,
            self.refuse: 2, self.number: 3, self.host.relay: 12, self.host.older_relay: 2, self.check: 6,
            self.forget: 4, self.write_pending: 4,
        }  # fmt: skip
        for step in self.chance.choices(list(kinds), list(kinds.values()), k=steps):
            step()
            kept, whole = self.host.kept(), self.host.whole()
            assert kept in (None, whole), step.__name__
            assert whole.balance
            self.relied_on += kept is not None

    def accept(self) -> None:
        event_type, unit = self.chance.choice(["status", "status", "booked"]), f"u{self.chance.randrange(5)}"
        self.host.world.record(unit, event_type, {"value": self.chance.randrange(3)})

    def send(self) -> None:
        bound = self.host.ids("change_id FROM nonce_requests WHERE status = 'SENT' ORDER BY nonce LIMIT 1")
        waiting = self.host.ids(
            "id FROM outbox_events WHERE outcome IS NULL AND id NOT IN (SELECT change_id FROM pending_fates)"
        )
        if bound or waiting:
            change_id = bound[0] if bound else self.chance.choice(waiting)
            self.host.send(change_id, rejected=self.chance.random() < 0.2, lost=self.chance.random() < 0.1)

    def send_past_a_lock(self) -> None:
        entity = f"entity_id = 'u{self.chance.randrange(5)}'"
        with held(self.host.engine, f"SELECT id FROM outbox_events WHERE outcome IS NULL AND {entity} FOR UPDATE"):
            self.send()

    def operator(self) -> None:
        dead = self.host.ids("id FROM outbox_events WHERE outcome = 'DEAD'")
        dead += self.host.ids("change_id FROM pending_fates WHERE outcome = 'DEAD'")
        if dead:
            action = self.chance.choice(["retry", "discard"])
            self.host.world.decide(action, change_id=self.chance.choice(dead))

    def went_back(self) -> None:
        last, _ = self.host.world.counts()
        if last and not self.host.ids("nonce FROM nonce_requests WHERE status = 'SENT'"):
            mode, expected = self.chance.choice(["resend", "adopt"]), max(1, last - self.chance.randrange(3))
            self.host.resolve(mode, expected, later=self.chance.random() < 0.3)

    def refuse(self) -> None:
        self.host.refused(str(self.chance.random()))

    def number(self) -> None:
        self.host.run(lambda connection: number_fates(connection, HOST, 2))

    def write_pending(self) -> None:
        self.host.run(lambda connection: write_pending_fates(connection, HOST, 2))

    def check(self) -> None:
        assert self.host.check() == 0

    def forget(self) -> None:
        ended = self.host.ids("id FROM outbox_events WHERE outcome IS NOT NULL")
        going = self.chance.sample(ended, min(len(ended), self.chance.randrange(6)))
        self.host.forget(*going, rows_max=4)


@pytest.mark.parametrize("seed", range(8))
def test_the_kept_books_are_those_of_counting_after_each_step(
    host: Host, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(late_emergencies, "SEQUENCES_MAX", 3)
    play = Play(host, seed)
    play.play(150)
    assert play.relied_on > 50
