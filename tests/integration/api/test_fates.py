"""A change's fate, step by step, and why it has none yet."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.audit import record_act


def execute(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def make(client: httpx.Client, key: str, event_type: str = "unit_status_changed", unit: str = "12B") -> int:
    answer = client.post(
        "/api/changes",
        json={"entity_type": "unit", "entity_id": unit, "event_type": event_type, "payload": {"status": key}},
        headers={"Idempotency-Key": key},
    )
    assert answer.status_code == 202
    return int(answer.json()["change_id"])


def fate(client: httpx.Client, key: str) -> dict[str, Any]:
    answer = client.get(f"/api/changes/{key}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def relay(engine: Engine, change_id: int) -> None:
    execute(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6) WHERE id = :id", id=change_id)


def end(engine: Engine, change_id: int, outcome: str, **more: Any) -> None:
    sets = "".join(f", {name} = :{name}" for name in more)
    execute(
        engine,
        f"UPDATE outbox_events SET outcome = :outcome, processed_at = UTC_TIMESTAMP(6){sets} WHERE id = :id",
        id=change_id,
        outcome=outcome,
        **more,
    )


def bind(engine: Engine, change_id: int, key: str, nonce: int, status: str) -> None:
    execute(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends, created_at, "
        "sent_at, completed_at, answer) VALUES ('oldhost', :nonce, :key, :id, 3, '{}', :status, :sent, "
        "UTC_TIMESTAMP(6), IF(:sent, UTC_TIMESTAMP(6), NULL), IF(:done, UTC_TIMESTAMP(6), NULL), "
        "IF(:done, '200 applied', NULL))",
        nonce=nonce,
        key=key,
        id=change_id,
        status=status,
        sent=status != "RESERVED",
        done=status in {"APPLIED", "FAILED"},
    )


def test_an_applied_change_tells_its_whole_way(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    relay(engine, change_id)
    bind(engine, change_id, "k", 501, "APPLIED")
    end(engine, change_id, "APPLIED", nonce=501)
    found = fate(shop, "k")
    assert [step["step"] for step in found["steps"]] == [
        "accepted",
        "relayed",
        "reserved",
        "sent",
        "answered",
        "applied",
    ]
    assert all(step["at"].endswith("Z") for step in found["steps"])
    assert (found["state"], found["nonce"], found["answer"]) == ("APPLIED", 501, "200 applied")
    assert found["waiting_for"] == []


def test_a_change_on_the_wire_waits_for_the_answer(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    relay(engine, change_id)
    bind(engine, change_id, "k", 501, "SENT")
    found = fate(shop, "k")
    assert (found["state"], found["waiting_for"]) == ("IN_FLIGHT", ["OldHost's answer to nonce 501"])


def test_a_superseded_change_names_what_replaced_it(shop: httpx.Client, engine: Engine) -> None:
    first, second = make(shop, "a"), make(shop, "b")
    end(engine, first, "SUPERSEDED", superseded_by=second)
    found = fate(shop, "a")
    assert (found["outcome"], found["superseded_by"]) == ("SUPERSEDED", second)
    assert found["steps"][-1]["detail"] == f"replaced by change {second}"


def test_a_change_before_the_relay_says_so(shop: httpx.Client) -> None:
    make(shop, "k")
    found = fate(shop, "k")
    assert (found["state"], found["waiting_for"]) == ("WAITING", ["the relay to hand it to the writer"])


def test_a_txn_change_behind_a_rejected_one_waits_for_an_operator(shop: httpx.Client, engine: Engine) -> None:
    rejected = make(shop, "a", "checked_in")
    end(engine, rejected, "DEAD", error="no such guest")
    relay(engine, make(shop, "b", "checked_out"))
    relay(engine, make(shop, "c", "unit_status_changed"))
    make(shop, "d", "checked_out", unit="another")
    assert fate(shop, "b")["waiting_for"] == [f"an operator to decide on change {rejected}, a dead letter"]
    for key in ("c", "d"):
        assert not any("operator" in reason for reason in fate(shop, key)["waiting_for"])


def test_a_change_waits_for_a_dead_letter_whose_fate_waits_for_its_row_and_not_for_what_ended_so(
    shop: httpx.Client, engine: Engine
) -> None:
    rejected, applied = make(shop, "a", "checked_in"), make(shop, "b")
    relay(engine, make(shop, "c", "checked_out"))
    for change_id, outcome in ((rejected, "DEAD"), (applied, "APPLIED")):
        execute(
            engine,
            "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome) "
            "SELECT host, id, entity_type, entity_id, :outcome FROM outbox_events WHERE id = :id",
            id=change_id,
            outcome=outcome,
        )
    assert fate(shop, "c")["waiting_for"] == [f"an operator to decide on change {rejected}, a dead letter"]


def test_a_ban_and_a_halt_are_named_first(shop: httpx.Client, engine: Engine) -> None:
    relay(engine, make(shop, "k"))
    execute(
        engine,
        "INSERT INTO nonce_ledger (host, banned_until, halted) "
        "VALUES ('oldhost', UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, 'a foreign write')",
    )
    halted, banned, turn = fate(shop, "k")["waiting_for"]
    assert halted == "an operator to resolve the halt: a foreign write"
    assert banned.startswith("the ban by OldHost to end, ")
    assert "debounce" in turn


def test_a_halt_that_is_decided_waits_for_no_operator(shop: httpx.Client, engine: Engine) -> None:
    relay(engine, make(shop, "k"))
    execute(
        engine, "INSERT INTO nonce_ledger (host, halted, resolve_mode) VALUES ('oldhost', 'a foreign write', 'adopt')"
    )
    assert fate(shop, "k")["waiting_for"][0] == "the writer to act on what is decided about the halt: adopt"


def test_a_pause_is_named_with_who_and_why_until_it_ends(shop: httpx.Client, engine: Engine) -> None:
    relay(engine, make(shop, "k", "guest_locked_out"))
    with engine.begin() as connection:
        record_act(
            connection, host="oldhost", action="pause", operator=at_the_terminal("anna"), reason="an hour of quiet"
        )
    assert fate(shop, "k")["waiting_for"] == [
        "an operator to resume sending, which anna paused: an hour of quiet",
        "its turn",
    ]
    with engine.begin() as connection:
        record_act(connection, host="oldhost", action="resume", operator=at_the_terminal("ben"), reason="over")
    assert fate(shop, "k")["waiting_for"] == ["its turn"]


def test_older_changes_of_the_entity_go_first(shop: httpx.Client, engine: Engine) -> None:
    make(shop, "a")
    relay(engine, make(shop, "b", "guest_locked_out"))
    assert "1 older change of the same entity" in fate(shop, "b")["waiting_for"]


def test_what_an_operator_decided_is_part_of_the_way(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k", "checked_in")
    bind(engine, change_id, "k", 7, "FAILED")
    execute(
        engine,
        "INSERT INTO operator_audit (channel, host, action, operator, reason, change_id) "
        "VALUES ('api', 'oldhost', 'discard', 'anna', 'the guest left', :id)",
        id=change_id,
    )
    end(engine, change_id, "DISCARDED")
    steps = fate(shop, "k")["steps"]
    assert ("discard", "by anna: the guest left") in [(step["step"], step["detail"]) for step in steps]
    assert steps[-1]["step"] == "discarded"


def test_a_nonce_that_was_set_aside_stays_on_record(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    relay(engine, change_id)
    execute(
        engine,
        "INSERT INTO nonce_requests_archive (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
        "reason) "
        "VALUES ('oldhost', 9, 'k', :id, 2, '{}', 'SENT', 1, 'resolved by adopt')",
        id=change_id,
    )
    steps = fate(shop, "k")["steps"]
    assert ("set_aside", "resolved by adopt", 9) in [(step["step"], step["detail"], step["nonce"]) for step in steps]


def test_an_unknown_change_is_a_404_that_says_where_keys_come_from(shop: httpx.Client) -> None:
    answer = shop.get("/api/changes/nobody-knows-it")
    assert answer.status_code == 404
    assert "idempotency_key" in answer.json()["action"]
