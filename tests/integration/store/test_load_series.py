"""Samples of the load: every change is counted once, the rings do not grow, and what stopped sending is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.read.figures import RINGS, SeriesPoint, read_series, record_sample
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb

_ACCEPT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, created_at) VALUES (:host, :key, REPEAT('a', 32), 'unit', :key, 'e', '{}', :cls, "
    "UTC_TIMESTAMP(6) - INTERVAL :ago SECOND)"
)
_END = (
    "UPDATE outbox_events SET outcome = :outcome, processed_at = UTC_TIMESTAMP(6), fate_sequence = :sequence "
    "WHERE host = :host AND idempotency_key = :key"
)
_COUNT = (
    "INSERT INTO nonce_ledger (host, fate_sequence) VALUES (:host, :sequence) "
    "ON DUPLICATE KEY UPDATE fate_sequence = :sequence"
)


class Load:
    """Accepts and ends changes; each fate gets the next number."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.fates = 0

    def run(self, statement: str, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), {"host": HOST, **values})

    def accept(self, *keys: str, cls: PriorityClass = PriorityClass.TXN, ago: float = 0) -> None:
        for key in keys:
            self.run(_ACCEPT, key=key, cls=cls.value, ago=ago)

    def end(self, *keys: str, outcome: str = "APPLIED") -> None:
        for key in keys:
            self.fates += 1
            self.run(_END, key=key, outcome=outcome, sequence=self.fates)
            self.run(_COUNT, sequence=self.fates)

    def sample(self, times: int = 1) -> None:
        for _ in range(times):
            with self.engine.begin() as connection:
                record_sample(connection, HOST)

    def series(self, span: str = "1h") -> list[SeriesPoint]:
        with self.engine.connect() as connection:
            return read_series(connection, HOST, span)

    def total(self, span: str = "1h") -> tuple[int, int]:
        """Accepted and applied, of all buckets."""
        found = self.series(span)
        return sum(each.accepted for each in found), sum(each.applied for each in found)


@pytest.fixture
def load(engine: Engine) -> Load:
    return Load(engine)


def test_each_change_is_counted_once_in_every_ring(load: Load) -> None:
    load.sample()
    load.accept("a", "b", "c")
    load.sample()
    load.accept("d")
    load.end("a", "b")
    load.end("c", outcome="SUPERSEDED")
    load.sample(3)
    assert [load.total(span) for span in RINGS] == [(4, 2)] * len(RINGS)


def test_what_was_there_before_the_first_sample_is_not_new(load: Load) -> None:
    load.accept("a", "b")
    load.end("a")
    load.sample(2)
    assert load.total() == (0, 0)


def test_the_next_relay_goes_on_where_the_last_one_stopped(load: Load) -> None:
    load.accept("a")
    load.sample()
    load.accept("b")
    load.end("a", "b")
    Load(load.engine).sample()
    assert load.total() == (1, 2)


def test_the_backlog_is_by_class(load: Load) -> None:
    load.accept("a", cls=PriorityClass.EMERGENCY)
    load.accept("b", "c")
    load.accept("d", "e", "f", cls=PriorityClass.LWW)
    load.sample()
    last = load.series()[-1]
    assert (last.emergency, last.txn, last.lww) == (1, 2, 3)


def test_an_emergency_counts_while_it_waits_and_when_it_has_ended(load: Load) -> None:
    load.accept("waits", cls=PriorityClass.EMERGENCY, ago=40)
    load.sample()
    assert load.series()[-1].emergency_ms >= 40_000
    load.accept("ended", cls=PriorityClass.EMERGENCY, ago=90)
    load.end("waits", "ended")
    load.sample()
    assert load.series()[-1].emergency_ms >= 90_000


def test_others_that_wait_long_are_no_emergency(load: Load) -> None:
    load.accept("a", ago=4_000)
    load.sample()
    assert load.series()[-1].emergency_ms == 0


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        (
            "INSERT INTO nonce_ledger (host, banned_until) VALUES (:host, UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE)",
            "BANNED",
        ),
        ("INSERT INTO nonce_ledger (host, banned_until) VALUES (:host, UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)", None),
        ("INSERT INTO nonce_ledger (host, halted) VALUES (:host, 'why')", "HALTED"),
    ],
)
def test_what_stopped_sending_is_kept(load: Load, statement: str, word: str | None) -> None:
    load.run(statement)
    load.sample()
    assert load.series()[-1].stopped == word


def test_a_pause_is_kept_until_it_is_resumed(load: Load) -> None:
    for action, expected in (("pause", "PAUSED"), ("resume", None)):
        with load.engine.begin() as connection:
            record_act(connection, host=HOST, action=action, operator=at_the_terminal("anna"), reason="why")
            connection.execute(text("DELETE FROM load_samples"))
        load.sample()
        assert load.series()[-1].stopped == expected


def test_a_row_is_overwritten_when_its_turn_comes_again(load: Load) -> None:
    load.accept("a")
    load.sample()
    last = load.series()[-1]
    load.run("UPDATE load_samples SET at = at - INTERVAL step_s * 5000 SECOND, accepted = 999, lww = 999")
    load.sample()
    shown = load.series()
    if shown[-1].at == last.at:  # the same bucket's row
        assert (shown[-1].lww, shown[-1].accepted) == (0, 0)
    rings = {ring.step_s: ring.slots for ring in RINGS.values()}
    with load.engine.connect() as connection:
        rows = connection.execute(text("SELECT step_s, slot FROM load_samples")).all()
    assert all(0 <= row.slot < rings[row.step_s] for row in rows)


def test_only_what_is_within_the_span_is_shown(load: Load) -> None:
    load.sample()
    load.run("UPDATE load_samples SET at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR")
    assert [len(load.series(span)) for span in RINGS] == [0, 1, 1]
    begin = datetime.now(UTC) - timedelta(hours=3)
    assert all(each.at > begin for span in RINGS for each in load.series(span))
