"""What the ledger knows of a ban: since when it runs, and whether a send of ours may have been the replay."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY
from oldhost_sync.store.read.host_condition import Ban, read_ban
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb


def banned(
    engine: Engine, *doubts: tuple[int, str | None], left_seconds: int = 600, expected: int | None = None
) -> Ban | None:
    """`doubts`: sends and answer of each operation in doubt, from nonce 9 on; before it are one sent once and one
    sent twice, both applied. `expected`: by OldHost, where that halted us.
    """
    rows: list[tuple[int, str, int, str | None]] = [(7, "APPLIED", 1, "applied"), (8, "APPLIED", 2, "applied")]
    rows += [(nonce, "SENT", sends, answer) for nonce, (sends, answer) in enumerate(doubts, 9)]
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO nonce_ledger (host, banned_at, banned_until, halted_expected_nonce) VALUES (%s, "
            "UTC_TIMESTAMP(6) - INTERVAL 300 SECOND, UTC_TIMESTAMP(6) + INTERVAL %s SECOND, %s)",
            (HOST, left_seconds, expected),
        )
        for nonce, status, sends, answer in rows:
            connection.exec_driver_sql(
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
                "answer) VALUES (%s, %s, %s, %s, 1, '', %s, %s, %s)",
                (HOST, nonce, nonce, nonce, status, sends, answer),
            )
        return read_ban(connection, HOST)


@pytest.mark.parametrize("doubts", [[], [(0, None)], [(1, None), (0, None)]])
def test_where_no_send_of_ours_can_be_the_replay_somebody_else_s_was(
    engine: Engine, doubts: list[tuple[int, str | None]]
) -> None:
    ban = banned(engine, *doubts)
    assert ban is not None
    assert ban.cause.startswith("OldHost does not say why. By the ledger no send of ours was a replay: another program")
    assert (ban.until - ban.began_at).total_seconds() == 900


@pytest.mark.parametrize("doubt", [(2, None), (1, "to be sent again by an operator's decision")])
def test_a_nonce_that_was_sent_again_without_an_answer_may_be_the_replay(
    engine: Engine, doubt: tuple[int, str | None]
) -> None:
    ban = banned(engine, (1, None), doubt)
    assert ban is not None
    assert ban.cause.startswith("We sent nonce 10 more than once")


def test_a_first_send_that_was_called_a_replay_is_named(engine: Engine) -> None:
    ban = banned(engine, (0, CALLED_A_REPLAY), (0, None), expected=10)
    assert ban is not None
    assert "our first send of nonce 9 a replay" in ban.cause
    assert "a proxy delivered our operation twice" in ban.cause


def test_where_later_nonces_are_used_no_proxy_did_it(engine: Engine) -> None:
    ban = banned(engine, (0, CALLED_A_REPLAY), (0, None), expected=12)
    assert ban is not None
    assert ban.cause.endswith("another program with our account had used it.")


def test_a_ban_that_is_over_is_none(engine: Engine) -> None:
    assert banned(engine, left_seconds=-1) is None
