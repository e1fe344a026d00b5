"""What is told before a halt is resolved is what the resolve then does, in every case that there is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.oldhost.ledger import NEVER_ASKED, Count
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.store.ledger import halt
from oldhost_sync.store.ledger.halt import NOBODY_KNOWS
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY
from oldhost_sync.store.read.halt import BACK, FORWARD, UNKNOWN_COUNT, Consequences, read_halt
from tests.integration.store.writing import HOST, rows

pytestmark = pytest.mark.mariadb

# Of nonces 1 to 10, 8 are settled.
LAST = 8


@dataclass(frozen=True)
class Row:
    """A nonce of the ledger; its change is numbered as it is."""

    nonce: int
    status: str
    sends: int = 1
    answer: str | None = None
    said: int | None = None


SETTLED = [Row(nonce, "FAILED" if nonce == 3 else "APPLIED") for nonce in range(1, LAST + 1)]
ONE_IN_DOUBT = [*SETTLED, Row(9, "SENT"), Row(10, "RESERVED", 0)]
REFUSED = [*SETTLED, Row(9, "SENT", 0), Row(10, "SENT")]
REPLAYED = [*SETTLED, Row(9, "SENT", 0, CALLED_A_REPLAY), Row(10, "SENT", 0)]
PRUNED = [*SETTLED[6:], Row(9, "SENT")]
CASES = {
    "it lost the last three": (ONE_IN_DOUBT, 6),
    "it lost all that is settled": (SETTLED, 1),
    "it lost what is no longer kept": (PRUNED, 4),
    "another wrote one": (ONE_IN_DOUBT, 12),
    "another wrote, and one was refused": (REFUSED, 11),
    "a refused one's nonce is used": (REFUSED, 10),
    "a first send was called a replay": (REPLAYED, 10),
    "another wrote beyond a replay": (REPLAYED, 14),
    "what follows was written, too": ([*SETTLED, Row(9, "SENT", 0), Row(10, "SENT"), Row(11, "SENT", 0)], 10),
    "nothing is in doubt": (SETTLED, 12),
    "a page was answered": ([*SETTLED, Row(9, "SENT", 1, "500: sorry", 500), Row(10, "SENT")], 11),
    "another 4xx was answered": ([*SETTLED, Row(9, "SENT", 2, "400: odd", 400)], 10),
    "a page was answered to what is beyond": ([*SETTLED, Row(9, "SENT"), Row(10, "SENT", 1, "500: sorry", 500)], 10),
}


def set_up(connection: Connection, ledger: list[Row], expected: int | None) -> None:
    for row in ledger:
        outcome = {"APPLIED": "APPLIED", "FAILED": "DEAD"}.get(row.status)
        connection.execute(
            text(
                "INSERT INTO outbox_events (id, host, idempotency_key, request_hash, entity_type, entity_id, "
                "event_type, payload, priority_class, processed_at, outcome, nonce) VALUES (:id, 'oldhost', :id, '', "
                "'unit', :id, 'e', '{}', 'TXN', IF(:outcome IS NULL, NULL, UTC_TIMESTAMP(6)), :outcome, "
                "IF(:outcome IS NULL, NULL, :id))"
            ),
            {"id": row.nonce, "outcome": outcome},
        )
        connection.execute(
            text(
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
                "answer, said_rejects, said_send) VALUES ('oldhost', :nonce, :nonce, :nonce, 1, '{\"payload\": {}}', "
                ":status, :sends, :answer, COALESCE(:said BETWEEN 400 AND 499, 0), IF(:said IS NULL, NULL, :sends))"
            ),
            {name: getattr(row, name) for name in ("nonce", "status", "sends", "answer", "said")},
        )
    connection.execute(
        text(
            "INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce, epoch, halted, halted_expected_nonce) "
            "VALUES ('oldhost', :next, :last, 1, 'they differ', :expected)"
        ),
        {"next": ledger[-1].nonce + 1, "last": LAST, "expected": expected},
    )


def effects(engine: Engine) -> dict[str, int]:
    """What the tables say."""
    (found,) = rows(
        engine,
        "SELECT (SELECT COUNT(*) FROM outbox_events WHERE outcome = 'APPLIED') AS applied, "
        "(SELECT COUNT(*) FROM outbox_events WHERE outcome = 'DEAD') AS dead, "
        "(SELECT COUNT(*) FROM nonce_requests WHERE status = 'SENT') AS sent_again, "
        "(SELECT COUNT(*) FROM outbox_events o WHERE outcome IS NULL AND NOT EXISTS "
        "(SELECT 1 FROM nonce_requests r WHERE r.change_id = o.id)) AS waiting, "
        "(SELECT next_nonce FROM nonce_ledger) AS next_nonce",
    )
    return {name: int(value) for name, value in found.items()}


@pytest.mark.parametrize("mode", ["adopt", "resend"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_told_is_what_the_resolve_does(engine: Engine, case: str, mode: str) -> None:
    compare_with_what_is_told(engine, case, mode)


def test_more_than_can_be_in_doubt_wait_again_for_the_relay(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer gets them as it has room, and sends of each LWW key only the newest."""
    monkeypatch.setattr(halt, "SENT_AGAIN_MAX", 2)
    compare_with_what_is_told(engine, "it lost the last three", "resend", relayed=True)
    assert len(rows(engine, "SELECT id FROM outbox_events WHERE outcome IS NULL AND relayed_at IS NULL")) == 3


def compare_with_what_is_told(engine: Engine, case: str, mode: str, *, relayed: bool = False) -> None:
    ledger, expected = CASES[case]
    with engine.begin() as connection:
        set_up(connection, ledger, expected)
        if relayed:
            connection.exec_driver_sql("UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    with engine.begin() as connection:
        halt = read_halt(connection, HOST)
        connection.exec_driver_sql("DELETE FROM nonce_requests WHERE status = 'RESERVED'")  # was never at stake
    assert halt is not None
    assert halt.difference == (BACK if expected <= LAST else FORWARD)
    told: Consequences = getattr(halt, mode)
    before = effects(engine)
    with engine.begin() as connection:
        done = decide(connection, OperatorAct(HOST, "resolve", "anna", "why", mode=mode), Count(expected))
    assert done.refused == ""
    after = effects(engine)
    assert after["sent_again"] == told.sent_again
    assert after["next_nonce"] == told.next_nonce
    reopened = told.sent_again + told.waiting_again if halt.difference == BACK and mode == "resend" else 0
    applied_among = sum(row.status == "APPLIED" and row.nonce >= expected for row in ledger) if reopened else 0
    assert after["applied"] - before["applied"] == told.counted_applied - applied_among
    assert after["waiting"] - before["waiting"] == told.waiting_again
    if halt.difference == FORWARD:
        assert after["dead"] - before["dead"] == told.letters
        assert told.letters + told.counted_applied + told.waiting_again + told.sent_again == halt.at_stake
    if halt.difference == BACK and mode == "adopt":
        assert done.message.startswith(f"OldHost's count is adopted: {told.given_up} operations")


CONCLUSIONS = {
    "it lost the last three": "3 behind ours: it lost 3 operations that it had answered, as after a restore",
    "another wrote one": "3 beyond ours: at least 2 operations that another client wrote",
    "a refused one's nonce is used": "1 beyond ours: 1 operation that another client wrote",
    "a first send was called a replay": "1 beyond ours: our 1 operation in doubt reached it, or another client wrote",
    "another wrote beyond a replay": "5 beyond ours: 5 operations that another client wrote",
    "nothing is in doubt": "3 beyond ours: 3 operations that another client wrote",
}


@pytest.mark.parametrize("case", CONCLUSIONS)
def test_the_difference_is_told_as_a_sentence_with_its_number(engine: Engine, case: str) -> None:
    ledger, expected = CASES[case]
    with engine.begin() as connection:
        set_up(connection, ledger, expected)
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert halt.conclusion.startswith(f"OldHost's nonce is {CONCLUSIONS[case]}")


@pytest.mark.parametrize(
    ("ledger", "expected", "same"),
    [
        (REPLAYED, 14, True),
        (REPLAYED, 10, False),
        (SETTLED, 12, True),
        (ONE_IN_DOUBT, 12, False),
        (ONE_IN_DOUBT, 6, False),
        (SETTLED, None, True),
        (REFUSED[:-1], None, True),
        (ONE_IN_DOUBT, None, False),
        (REPLAYED, None, False),
    ],
)
def test_that_both_ways_do_the_same_is_told(
    engine: Engine, ledger: list[Row], expected: int | None, same: bool
) -> None:
    with engine.begin() as connection:
        set_up(connection, ledger, expected)
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert halt.same is same
    assert (halt.adopt == halt.resend) is same


@pytest.mark.parametrize("mode", ["adopt", "resend"])
def test_what_is_told_of_a_host_that_can_not_be_asked_is_what_the_operators_word_does(
    engine: Engine, mode: str
) -> None:
    with engine.begin() as connection:
        set_up(connection, [*SETTLED, Row(9, "SENT"), Row(10, "SENT", 0)], None)
        connection.execute(text("UPDATE nonce_ledger SET halted = :why"), {"why": f"{NOBODY_KNOWS} 9 (nonce 9)"})
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert not halt.same
    told: Consequences = getattr(halt, mode)
    before = effects(engine)
    with engine.begin() as connection:
        assert decide(connection, OperatorAct(HOST, "resolve", "anna", "why", mode=mode), NEVER_ASKED).refused == ""
    after = effects(engine)
    assert after["sent_again"] == told.sent_again
    assert after["applied"] - before["applied"] == told.counted_applied


def test_without_a_halt_there_is_nothing_to_show(engine: Engine) -> None:
    with engine.begin() as connection:
        set_up(connection, SETTLED, None)
        connection.exec_driver_sql("UPDATE nonce_ledger SET halted = NULL")
        assert read_halt(connection, HOST) is None


def test_a_halt_without_a_count_says_that_oldhost_is_asked(engine: Engine) -> None:
    with engine.begin() as connection:
        set_up(connection, ONE_IN_DOUBT, None)
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert (halt.difference, halt.at_stake, halt.adopt.given_up) == (UNKNOWN_COUNT, 1, 0)
    assert "OldHost is asked" in halt.adopt.says
    assert [each.nonce for each in halt.operations] == [9]


def test_the_operations_at_stake_are_named_with_their_changes(engine: Engine) -> None:
    with engine.begin() as connection:
        set_up(connection, ONE_IN_DOUBT, 7)
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert [(each.nonce, each.status, each.entity_id) for each in halt.operations] == [
        (7, "APPLIED", "7"), (8, "APPLIED", "8"), (9, "SENT", "9"),
    ]  # fmt: skip
    assert halt.at_stake == 3
