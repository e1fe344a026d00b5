"""Dead letters: by OldHost's reason, decided one by one, several at a time, or replaced by a corrected copy."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.engine import Engine

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.policy.rules.alert_cause import REASON_LENGTH_MAX
from oldhost_sync.store.ledger.fates import APART
from oldhost_sync.store.read import dead_letters
from tests.integration.api.conftest import ScriptedWriter
from tests.integration.api.test_fates import end, execute, fate, make
from tests.integration.api.test_writes import rows

pytestmark = pytest.mark.mariadb
WHY = {"reason": "because"}


def rejected(client: httpx.Client, engine: Engine, key: str, error: str | None, unit: str = "12B") -> int:
    change_id = make(client, key, "checked_in", unit=unit)
    end(engine, change_id, "DEAD", error=error)
    return change_id


def groups(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/dead-letters/groups").json()["groups"]
    return found


def decided(writer: ScriptedWriter) -> list[tuple[str, int | None]]:
    return [(name, request.change_id) for name, request in writer.acts]


def test_letters_are_grouped_by_reason_whatever_numbers_it_has(
    shop: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    guests = [rejected(shop, engine, f"g{number}", f"no such guest g-{number}", f"u{number}") for number in range(3)]
    door = rejected(shop, engine, "d", "no such door")
    silent = rejected(shop, engine, "s", None)
    make(shop, "held", "checked_out", unit="u1")
    found = groups(vera)
    assert [(each["reason"], each["letters"], each["held"]) for each in found] == [
        ("no such guest g-#", 3, 1), ("(no reason)", 1, 0), ("no such door", 1, 0),
    ]  # fmt: skip
    assert (found[0]["change_ids"], found[0]["newest_id"], found[0]["entities"]) == (guests, guests[-1], 3)
    assert found[0]["event_types"] == ["checked_in"]
    of_group = vera.get("/api/dead-letters", params={"group": "no such guest g-#"}).json()["dead_letters"]
    assert [letter["change_id"] for letter in of_group] == guests
    assert {door, silent}.isdisjoint(guests)


def test_what_waits_behind_several_letters_of_an_entity_is_held_once(
    shop: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    rejected(shop, engine, "a", "no such guest")
    make(shop, "b", "checked_out")
    rejected(shop, engine, "c", "no such guest")
    make(shop, "d", "checked_out")
    (group,) = groups(vera)
    assert (group["letters"], group["entities"], group["held"]) == (2, 1, 2)


def test_a_letter_whose_row_is_locked_is_in_its_group(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "a", "checked_in")
    execute(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, error) "
        "VALUES ('oldhost', :id, 'unit', '12B', 'DEAD', 'no such guest')",
        id=change_id,
    )
    (group,) = groups(vera)
    assert (group["reason"], group["change_ids"]) == ("no such guest", [change_id])


def test_more_letters_than_are_looked_at_are_told(
    shop: httpx.Client, vera: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 1)
    nothing = {"groups": [], "other_reasons": 0, "other_letters": 0, "more": False}
    assert vera.get("/api/dead-letters/groups").json() == nothing
    for key in "ab":
        rejected(shop, engine, key, "no")
    assert vera.get("/api/dead-letters/groups").json()["more"] is True


def test_the_smallest_groups_are_counted_and_come_when_larger_ones_are_decided(
    shop: httpx.Client, vera: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "GROUPS_MAX", 1)
    large = [rejected(shop, engine, key, "no such guest") for key in "ab"]
    small = [rejected(shop, engine, reason, f"no such {reason}") for reason in ("door", "lift")]
    told = vera.get("/api/dead-letters/groups").json()
    assert [each["reason"] for each in told["groups"]] == ["no such guest"]
    assert (told["other_reasons"], told["other_letters"]) == (2, 2)
    of_group = vera.get("/api/dead-letters", params={"group": "no such lift"}).json()["dead_letters"]
    assert [letter["change_id"] for letter in of_group] == small[1:]
    for change_id in large:
        end(engine, change_id, "DISCARDED")
    assert [each["reason"] for each in groups(vera)] == ["no such door"]


def test_a_long_reason_names_its_group_by_its_beginning_and_the_example_has_all_of_it(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    reason = "no such guest 17 " + "x" * 500
    change_id = rejected(shop, engine, "a", reason)
    (group,) = groups(anna)
    assert len(group["reason"]) == REASON_LENGTH_MAX
    assert group["example"] == reason
    anna.post("/api/dead-letters/retry", json=WHY | {"group": group["reason"]})
    assert decided(writer) == [("retry", change_id)]


@pytest.mark.parametrize("action", ["retry", "discard", "confirm"])
def test_a_selection_is_decided_in_its_order_and_each_answer_is_told(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter, action: str
) -> None:
    first, second = (rejected(shop, engine, key, "no") for key in "ab")
    waiting = make(shop, "c", "checked_in")
    answer = anna.post(f"/api/dead-letters/{action}", json=WHY | {"change_ids": [second, waiting, first, 999, second]})
    assert answer.status_code == 200
    assert decided(writer) == [(action, second), (action, first)]
    assert {(request.operator, request.reason) for _, request in writer.acts} == {("anna", "because")}
    told = answer.json()
    assert (told["decided"], told["left"], told["stopped"]) == (2, 0, None)
    assert [(each["change_id"], each["done"]) for each in told["decisions"]] == [
        (second, True), (waiting, False), (first, True), (999, False),
    ]  # fmt: skip


def test_a_group_is_decided_as_it_was_shown_and_at_most_so_many_at_a_time(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [rejected(shop, engine, f"k{number}", f"no such guest {number}") for number in range(4)]
    rejected(shop, engine, "other", "no such door")
    (group, _) = groups(anna)
    later = rejected(shop, engine, "later", "no such guest 99")
    monkeypatch.setattr(http_limits, "LETTERS_AT_ONCE_MAX", 3)
    body = WHY | {"group": group["reason"], "up_to": group["newest_id"]}
    told = anna.post("/api/dead-letters/discard", json=body).json()
    assert ([change_id for _, change_id in decided(writer)], told["left"]) == (ids[:3], 1)
    for change_id in ids[:3]:
        end(engine, change_id, "DISCARDED")
    told = anna.post("/api/dead-letters/discard", json=body).json()
    assert ([change_id for _, change_id in decided(writer)], told["left"]) == (ids, 0)
    assert later not in ids


def test_what_the_writer_refuses_does_not_stop_the_others(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [rejected(shop, engine, key, "no") for key in "abc"]
    refuse = {ids[1]: Problem(409, "refused", "The writer refused to retry", "It was decided meanwhile.", "Look.")}
    answer_to(writer, refuse, monkeypatch)
    told = anna.post("/api/dead-letters/retry", json=WHY | {"change_ids": ids}).json()
    assert [(each["done"], each["message"]) for each in told["decisions"]] == [
        (True, "retry: done"), (False, "It was decided meanwhile."), (True, "retry: done"),
    ]  # fmt: skip


def test_a_writer_that_goes_away_ends_it_and_what_was_done_is_told(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [rejected(shop, engine, key, "no") for key in "abc"]
    answer_to(writer, {ids[1]: writer_away("Temporal does not answer")}, monkeypatch)
    told = anna.post("/api/dead-letters/retry", json=WHY | {"change_ids": ids}).json()
    assert (told["decided"], told["left"], told["stopped"]) == (1, 2, "Temporal does not answer.")
    writer.problem = writer_away("Temporal does not answer")
    assert anna.post("/api/dead-letters/retry", json=WHY | {"change_ids": ids[1:]}).status_code == 503


def test_one_request_takes_a_bounded_time(
    app: FastAPI, shop: httpx.Client, anna: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [rejected(shop, engine, key, "no") for key in "ab"]
    monkeypatch.setattr(http_limits, "LETTERS_SECONDS_MAX", 0.0)
    told = anna.post("/api/dead-letters/retry", json=WHY | {"change_ids": ids}).json()
    assert (told["decided"], told["left"]) == (0, 2)
    assert "send it again" in told["stopped"]


def answer_to(writer: ScriptedWriter, problems: dict[int, Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer raises these for their changes, and does the others."""
    update = writer.update

    async def picky(name: str, request: Any) -> str:
        if request.change_id in problems:
            raise problems[request.change_id]
        return await update(name, request)

    monkeypatch.setattr(writer, "update", picky)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"change_ids": []},
        {"change_ids": [0]},
        {"change_ids": [1] * 51},
        {"change_ids": [1], "group": "no"},
        {"group": ""},
    ],
)
def test_which_letters_must_be_said_in_one_way(
    anna: httpx.Client, writer: ScriptedWriter, body: dict[str, Any]
) -> None:
    assert anna.post("/api/dead-letters/retry", json=WHY | body).status_code == 422
    assert writer.acts == []


# ----------------------------------------------------------------------------------------------------- corrected copies


def test_a_corrected_copy_is_a_new_change_and_the_letter_is_discarded(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    letter = rejected(shop, engine, "a", "no such guest")
    answer = anna.post(f"/api/dead-letters/{letter}/replace", json=WHY | {"payload": {"guest": "right"}})
    assert answer.status_code == 202
    told = answer.json()
    assert (told["change_id"], told["discarded"]) == (letter, True)
    assert decided(writer) == [("discard", letter)]
    assert writer.acts[0][1].reason == f"replaced by change {told['replaced_by']}: because"
    (copy,) = rows(engine, "SELECT * FROM outbox_events WHERE id = :id", id=told["replaced_by"])
    assert (copy.entity_id, copy.event_type, copy.payload) == ("12B", "checked_in", '{"guest":"right"}')
    assert (copy.idempotency_key, copy.source) == (told["idempotency_key"], "api:anna")
    assert copy.idempotency_key != "a"


def test_both_changes_tell_of_each_other_in_the_audit_and_in_their_way(
    shop: httpx.Client, anna: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    letter = rejected(shop, engine, "a", "no such guest")
    body = WHY | {"payload": {"guest": "right"}, "idempotency_key": "mine"}
    copy = anna.post(f"/api/dead-letters/{letter}/replace", json=body).json()["replaced_by"]
    acts = vera.get("/api/audit").json()["entries"]
    assert [(act["action"], act["change_id"], act["operator"], act["reason"]) for act in acts] == [
        ("correct", copy, "anna", "because"), ("replace", letter, "anna", "because"),
    ]  # fmt: skip
    assert (acts[0]["detail"]["corrects"], acts[1]["detail"]["replaced_by"]) == (letter, copy)
    assert "right" not in vera.get("/api/audit").text
    assert f"by anna: because (its corrected copy is change {copy})" in [
        each["detail"] for each in fate(shop, "a")["steps"]
    ]
    assert f"by anna: because (a corrected copy of change {letter})" in [
        each["detail"] for each in fate(anna, "mine")["steps"]
    ]


def test_a_letter_that_could_not_be_discarded_is_when_the_request_comes_again(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    letter = rejected(shop, engine, "a", "no such guest")
    body = WHY | {"payload": {"guest": "right"}}
    writer.problem = writer_away("Temporal does not answer")
    first = anna.post(f"/api/dead-letters/{letter}/replace", json=body).json()
    assert first["discarded"] is False
    assert "not discarded yet: Temporal does not answer" in first["message"]
    writer.problem = None
    again = anna.post(f"/api/dead-letters/{letter}/replace", json=body).json()
    assert (again["discarded"], again["replaced_by"]) == (True, first["replaced_by"])
    assert decided(writer) == [("discard", letter)]
    end(engine, letter, "DISCARDED")
    third = anna.post(f"/api/dead-letters/{letter}/replace", json=body).json()
    assert (third["discarded"], third["replaced_by"]) == (True, first["replaced_by"])
    assert decided(writer) == [("discard", letter)]
    assert len(rows(engine, "SELECT 1 FROM operator_audit")) == 2


def test_only_a_dead_letter_is_replaced(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    change_id = make(shop, "a", "checked_in")
    body = WHY | {"payload": {"guest": "right"}}
    assert anna.post(f"/api/dead-letters/{change_id}/replace", json=body).status_code == 409
    assert anna.post(f"/api/dead-letters/{change_id + 1}/replace", json=body).status_code == 404
    end(engine, change_id, "APPLIED")
    assert anna.post(f"/api/dead-letters/{change_id}/replace", json=body).status_code == 409
    assert len(rows(engine, "SELECT 1 FROM outbox_events")) == 1
    assert rows(engine, "SELECT 1 FROM operator_audit") == []
    assert writer.acts == []


# ------------------------------------------------------------------------------------------------------------- the halt


def test_a_halt_shows_both_ways_in_numbers(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    assert vera.get("/api/writer/halt").json() == {"halt": None}
    change_id = make(shop, "k", "checked_in")
    execute(
        engine,
        "INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce, halted, halted_expected_nonce) "
        "VALUES ('oldhost', 9, 8, 'it went back', 8)",
    )
    execute(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends) "
        "VALUES ('oldhost', 8, 'k', :id, 1, '{\"payload\": {\"guest\": \"secret\"}}', 'APPLIED', 1)",
        id=change_id,
    )
    answer = vera.get("/api/writer/halt")
    halt = answer.json()["halt"]
    assert (halt["difference"], halt["expected_nonce"], halt["next_nonce"], halt["at_stake"]) == ("back", 8, 9, 1)
    assert (halt["adopt"]["given_up"], halt["resend"]["sent_again"]) == (1, 1)
    assert [each["change_id"] for each in halt["operations"]] == [change_id]
    assert "secret" not in answer.text


def test_what_waits_apart_is_decided_as_a_letter_is(
    shop: httpx.Client, anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    poison, waiting = make(shop, "a", "checked_in"), make(shop, "b", "checked_in", unit="u2")
    execute(
        engine,
        "INSERT INTO nonce_requests_archive (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
        "archived_at, reason) VALUES ('oldhost', 501, 'a', :id, 1, '', 'SENT', 1, UTC_TIMESTAMP(6), :why)",
        id=poison,
        why=APART,
    )
    for action in ("retry", "discard"):
        assert anna.post(f"/api/dead-letters/{poison}/{action}", json=WHY).status_code == 200
        assert anna.post(f"/api/dead-letters/{waiting}/{action}", json=WHY).status_code == 409
    assert decided(writer) == [("retry", poison), ("discard", poison)]
    assert any("refused it without using its nonce" in each for each in fate(shop, "a")["waiting_for"])
