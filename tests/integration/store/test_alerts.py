"""Alerts, operators' acts, refused submissions, and what is forgotten after a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store import alerts, audit
from oldhost_sync.store.intake.change_recorder import record_refused
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.outbox.books import count_books
from oldhost_sync.store.retention import BEGINNING, Pruned, prune
from tests.integration.store.writing import HOST, before, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb


def raised(engine: Engine, key: str = "ban", **changes: Any) -> bool:
    values: dict[str, Any] = {"host": HOST, "kind": "ban", "severity": "critical", "message": "banned"}
    with engine.begin() as connection:
        return alerts.raise_alert(connection, dedupe_key=key, **(values | changes))


def test_one_alert_is_open_per_cause(engine: Engine) -> None:
    assert raised(engine)
    assert not raised(engine)
    assert raised(engine, host="other")
    with engine.begin() as connection:
        assert alerts.close_alert(connection, HOST, "ban")
        assert not alerts.close_alert(connection, HOST, "ban")
    assert raised(engine)
    with engine.begin() as connection:
        assert alerts.close_alert(connection, HOST, "ban")
        assert alerts.list_alerts(connection, HOST) == []
        assert len(alerts.list_alerts(connection, HOST, state="all")) == 2


def test_an_alert_that_is_open_already_does_not_spoil_the_transaction(engine: Engine) -> None:
    raised(engine)
    with engine.begin() as connection:
        values: dict[str, Any] = {"host": HOST, "kind": "x", "severity": "info"}
        assert not alerts.raise_alert(connection, dedupe_key="ban", message="again", **values)
        assert alerts.raise_alert(connection, dedupe_key="new", message="y" * 5000, **values)
    assert len(rows(engine, "SELECT id FROM alerts")) == 2


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("unit \ud800", "unit \\ud800"),
        ("unit \x00\x1b[2J", "unit \\x00\\x1b[2J"),
        ("unit 🏠\nline", "unit 🏠\\nline"),
        ("x" * 1023 + "\ud800", "x" * 1023 + "\\"),
        ("🏠" * 2000, "🏠" * 1024),
    ],
    ids=ascii,
)
def test_an_alert_is_kept_whatever_its_text_names(engine: Engine, said: str, kept: str) -> None:
    assert raised(engine, said, message=said)
    assert not raised(engine, said, message=said)
    assert [row["message"] for row in rows(engine, "SELECT message FROM alerts")] == [kept]
    with engine.begin() as connection:
        assert alerts.close_alert(connection, HOST, said)


def test_alerts_are_listed_newest_first_in_pages(engine: Engine) -> None:
    for key in "abc":
        raised(engine, key)
    with engine.connect() as connection:
        page = alerts.list_alerts(connection, HOST, limit=2)
        rest = alerts.list_alerts(connection, HOST, limit=2, before_id=page[-1].alert_id)
    assert [alert.cause for alert in page + rest] == ["c", "b", "a"]


def test_operators_acts_are_kept_with_who_and_why(engine: Engine) -> None:
    with engine.begin() as connection:
        audit.record_act(connection, host=HOST, action="pause", operator=at_the_terminal("ada"), reason="maintenance")
        audit.record_act(
            connection,
            host=HOST,
            action="discard",
            operator=at_the_terminal("bob"),
            reason="wrong",
            change_id=7,
            detail={"mode": "x"},
        )
        newest, oldest = audit.list_acts(connection, HOST)
        assert [act.operator for act in audit.list_acts(connection, HOST, before_id=newest.act_id)] == ["ada"]
    assert (newest.action, newest.change_id, newest.detail) == ("discard", 7, {"mode": "x"})
    assert (oldest.reason, oldest.detail) == ("maintenance", None)


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    "change", [None, "text", ["list"], {"entity_type": "unit", "entity_id": 7}, {"x": "y" * 100_000}, {"x": b"b"}, LOOP]
)
def test_a_refused_submission_is_seen_and_stands_outside_the_books(engine: Engine, change: Any) -> None:
    for _ in range(2):
        with engine.begin() as connection:
            record_refused(
                connection, host=HOST, idempotency_key="signal:1", change=change, reason="no payload", source="signal"
            )
    (row,) = rows(engine, "SELECT * FROM outbox_events")
    assert (row["outcome"], row["error"], row["relayed_at"]) == ("REFUSED", "no payload", None)
    assert row["entity_id"] == "unknown"
    assert "submitted" in json.loads(row["payload"])
    (alert,) = rows(engine, "SELECT * FROM alerts")
    assert (alert["change_id"], alert["severity"]) == (row["id"], "warning")
    with engine.connect() as connection:
        assert count_books(connection, HOST).accepted == 0
        assert outstanding_changes.claim_batch(connection, HOST, 10) == []


def test_what_ended_long_ago_is_forgotten_in_bounded_batches(engine: Engine) -> None:
    for number in range(7):
        recorded(engine, entity_id=f"u{number}")
    change_sql(
        engine,
        "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6) - INTERVAL 100 DAY, "
        "outcome = IF(entity_id = 'u0', 'DEAD', 'APPLIED') WHERE entity_id < 'u5'",
    )
    change_sql(
        engine, "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'NO_OP' WHERE entity_id = 'u5'"
    )
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, completed_at) "
        "SELECT host, 1, 'k', id, 1, '{}', 'APPLIED', UTC_TIMESTAMP(6) - INTERVAL 100 DAY FROM outbox_events "
        "WHERE entity_id = 'u1'",
    )
    change_sql(engine, "INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce) VALUES ('oldhost', 2, 1)")
    pruned = [Pruned(0, more=True, place=BEGINNING)]
    while pruned[-1].more:
        with engine.begin() as connection:
            pruned.append(prune(connection, HOST, before(connection), rows=2, place=pruned[-1].place))
    assert max(each.gone for each in pruned) <= 2
    assert sum(each.gone for each in pruned) == 3
    left = [row["entity_id"] for row in rows(engine, "SELECT entity_id FROM outbox_events ORDER BY entity_id")]
    assert left == ["u0", "u1", "u5", "u6"]
