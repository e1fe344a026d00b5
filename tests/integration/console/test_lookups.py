"""The pages on which people look things up and decide: who sees and does what, what is audited, what is never shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from markupsafe import escape
from sqlalchemy import Engine, text

from oldhost_sync.api import http_limits
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.console import dead_letters_page
from oldhost_sync.console.next_steps import broken
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.tuning import USUAL_PROMISES
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.intake.rules import class_of
from oldhost_sync.store.read.dead_letters import GROUPS_MAX
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.api.conftest import HOST, ScriptedWriter

pytestmark = pytest.mark.mariadb
WHY = {"reason": "OldHost's people asked"}
SECRET = "Vera Secret"


def recorded(engine: Engine, key: str, event_type: str = "checked_in", unit: str = "12B", **more: Any) -> int:
    change = run_in_transaction(
        engine,
        lambda connection: record_change(
            connection,
            host=HOST,
            entity_type="unit",
            entity_id=unit,
            event_type=event_type,
            payload={"guest": SECRET},
            idempotency_key=key,
            **more,
        ),
    )
    return change.change_id or 0


def run_sql(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def rejected(engine: Engine, key: str, error: str = "no such guest", unit: str = "12B") -> int:
    change_id = recorded(engine, key, unit=unit)
    run_sql(
        engine,
        "UPDATE outbox_events SET outcome = 'DEAD', processed_at = UTC_TIMESTAMP(6), error = :error WHERE id = :id",
        id=change_id,
        error=error,
    )
    return change_id


def halt(engine: Engine) -> None:
    run_sql(
        engine,
        "INSERT INTO nonce_ledger (host, epoch, next_nonce, last_applied_nonce, halted, halted_expected_nonce) "
        "VALUES (:host, 4, 9, 8, 'OldHost went back', 6)",
        host=HOST,
    )


def page(client: httpx.Client, path: str, **params: Any) -> str:
    answer = client.get(f"{PREFIX}{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.text


def acts(engine: Engine) -> list[tuple[str, str, str]]:
    """Without the sign-ins: each reader of these tests has one."""
    with engine.connect() as connection:
        found = list_acts(connection, HOST)
    return [(act.action, act.operator, act.reason) for act in found if act.action != "sign-in"]


# ------------------------------------------------------------------------------------------------------------- looking


def test_changes_are_listed_and_filtered(anna: httpx.Client, engine: Engine) -> None:
    rejected(engine, "key-a")
    recorded(engine, "key-b", "guest_locked_out", "7A")
    shown = page(anna, "/changes")
    assert shown.index("key-b") < shown.index("key-a")
    for wanted in ({"outcome": "DEAD"}, {"answer": "SUCH guest"}, {"entity_id": "12B"}, {"event_type": "checked_in"}):
        shown = page(anna, "/changes", **wanted)
        assert ("key-a" in shown, "key-b" in shown) == (True, False), wanted
    assert "key-b" in page(anna, "/changes", priority_class="EMERGENCY", newer_hours="1", entity_type="", answer="")
    assert "No such changes." in page(anna, "/changes", older_hours="1")
    assert anna.get(f"{PREFIX}/changes", params={"outcome": "LOST"}).status_code == 422
    assert anna.get(f"{PREFIX}/changes", params={"newer_hours": "soon"}).status_code == 422


def test_the_search_shows_one_hit_at_once_and_several_as_a_list(vera: httpx.Client, engine: Engine) -> None:
    first = recorded(engine, "key-a", unit="unit-1")
    recorded(engine, "key-b", unit="unit-2")
    assert vera.get(f"{PREFIX}/search", params={"q": "key-a"}).headers["location"] == f"{PREFIX}/changes/{first}"
    assert vera.get(f"{PREFIX}/search", params={"q": "unit-2"}).headers["location"].endswith("/entities/unit/unit-2")
    several = page(vera, "/search", q="unit-")
    assert "unit/unit-1" in several
    assert "unit/unit-2" in several
    assert "Nothing has this key" in page(vera, "/search", q="nobody")
    assert "type/id" in page(vera, "/search")


def test_a_change_tells_its_way_and_what_it_waits_for(vera: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "key-a")
    held = recorded(engine, "key-b", "checked_out")
    shown = page(vera, f"/changes/{letter}")
    assert "DEAD" in shown
    assert "no such guest" in shown
    assert "accepted" in shown
    assert f"decide on change {letter}" in page(vera, f"/changes/{held}")
    assert vera.get(f"{PREFIX}/changes/999").status_code == 404


def test_the_overview_leads_to_the_emergencies_that_took_too_long(vera: httpx.Client, engine: Engine) -> None:
    late, in_time = (recorded(engine, key, "guest_locked_out", key) for key in ("a", "b"))
    for change_id, seconds in ((late, 31), (in_time, 2)):
        run_sql(
            engine,
            "UPDATE outbox_events SET created_at = UTC_TIMESTAMP(6) - INTERVAL :s SECOND WHERE id = :id",
            id=change_id,
            s=seconds,
        )
    assert str(escape(broken(USUAL_PROMISES).path)) in page(vera, "")
    shown = vera.get(broken(USUAL_PROMISES).path).text
    assert (f'/changes/{late}"' in shown, f'/changes/{in_time}"' in shown) == (True, False)
    assert "waiting</span>" in shown


def test_a_change_shows_all_its_times_in_one_form(vera: httpx.Client, engine: Engine) -> None:
    change_id = recorded(engine, "key-a")
    run_sql(
        engine,
        "INSERT INTO nonce_ledger (host, banned_at, banned_until) "
        "VALUES (:host, UTC_TIMESTAMP(6), '2099-11-22 03:15:00')",
        host=HOST,
    )
    shown = page(vera, f"/changes/{change_id}")
    assert ">2099-11-22 03:15:00</time>" in shown
    assert "+00:00" not in shown


def test_an_entity_is_shown_beside_what_oldhost_has(vera: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    rejected(engine, "key-a")
    shown = page(vera, "/entities/unit/12B")
    assert "SYNC_FAILED" in shown
    assert "OldHost never had it" in shown
    writer.problem = writer_away("Temporal does not answer")
    assert "Temporal does not answer." in page(vera, "/entities/unit/12B")
    assert vera.get(f"{PREFIX}/entities/unit/nobody").status_code == 404


def test_units_are_found_by_property_name_and_sync_status(vera: httpx.Client, engine: Engine) -> None:
    for unit, name, place in (("u1", "Sea view", "seaview"), ("u2", "Hill top", "hilltop")):
        recorded(engine, unit, unit=unit)
        run_sql(
            engine,
            "UPDATE units SET name = :name, property_id = :place WHERE id = :id",
            name=name,
            place=place,
            id=unit,
        )
    for wanted in ({"property_id": "seaview"}, {"name": "sea VIEW"}):
        shown = page(vera, "/units", **wanted)
        assert ("Sea view" in shown, "Hill top" in shown) == (True, False)
    assert "No such units." in page(vera, "/units", sync_status="SYNC_FAILED")
    assert vera.get(f"{PREFIX}/units", params={"sync_status": "x"}).status_code == 422


def test_sessions_are_told_by_the_operations_they_bound(vera: httpx.Client, engine: Engine) -> None:
    for nonce, epoch, sends in ((1, 3, 1), (2, 3, 2), (3, 4, 1)):
        run_sql(
            engine,
            "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends) "
            "VALUES (:host, :nonce, :nonce, :nonce, :epoch, '{}', 'APPLIED', :sends)",
            host=HOST, nonce=nonce, epoch=epoch, sends=sends,
        )  # fmt: skip
    shown = page(vera, "/sessions")
    assert shown.index(">4<") < shown.index(">3<")
    assert "1–2" in shown


def test_the_sessions_page_says_plainly_which_processes_are_at_work(vera: httpx.Client, engine: Engine) -> None:
    assert "none has reported within the last day" in page(vera, "/sessions")
    ages = {"busy-worker": 3, "killed-worker": 600, "former-worker": 7_200}
    for name, seconds in ages.items():
        run_sql(
            engine,
            "INSERT INTO workers (host, name, knows_release, seen_at, left_at) VALUES (:host, :name, 1, "
            "UTC_TIMESTAMP(6) - INTERVAL :s SECOND, IF(:name = 'former-worker', seen_at, NULL))",
            host=HOST, name=name, s=seconds,
        )  # fmt: skip
    shown = page(vera, "/sessions")
    said = {name: shown.partition(name)[2].partition("</tr>")[0] for name in ages}
    assert "at work</span>" in said["busy-worker"]
    assert "not at work</span> since <time" in said["killed-worker"]
    assert "left</span> at <time" in said["former-worker"]


def test_no_page_shows_a_payload_to_a_viewer(vera: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "key-a")
    halt(engine)
    run_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends) "
        "VALUES (:host, 7, 'key-a', :id, 1, :body, 'APPLIED', 1)",
        host=HOST, id=letter, body=SECRET,
    )  # fmt: skip
    for path in (
        "", "/changes", f"/changes/{letter}", "/entities/unit/12B", "/units", "/dead-letters",
        "/dead-letters/group?reason=no such guest", "/halt", "/sessions", "/rules", "/audit", "/scheduled",
    ):  # fmt: skip
        answer = vera.get(f"{PREFIX}{path}")
        assert answer.status_code == 200, path
        assert SECRET not in answer.text, path
    assert vera.post(f"{PREFIX}/changes/{letter}/payload").status_code == 403
    assert acts(engine) == []


def test_viewers_are_shown_no_acts_and_may_do_none(vera: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    letter = rejected(engine, "key-a")
    halt(engine)
    for path in ("/changes", f"/changes/{letter}", "/entities/unit/12B", "/dead-letters", "/halt", "/rules"):
        assert 'name="reason"' not in page(vera, path), path
    for path in (
        f"/changes/{letter}/retry", f"/changes/{letter}/discard", f"/changes/{letter}/replace", "/dead-letters/retry",
        f"/changes/{letter}/confirm",
        "/dead-letters/discard", "/dead-letters/group/retry", "/dead-letters/group/discard", "/halt/resolve",
        "/rules/set", "/scheduled/cancel", "/entity/flush",
    ):  # fmt: skip
        assert vera.post(f"{PREFIX}{path}", data=WHY).status_code == 403, path
    assert writer.acts == []


# -------------------------------------------------------------------------------------------------------------- acting


def test_an_operator_sees_a_payload_and_that_stands_in_the_audit(anna: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "key-a")
    assert SECRET not in page(anna, f"/changes/{letter}")
    assert SECRET in anna.post(f"{PREFIX}/changes/{letter}/payload").text
    assert acts(engine) == [("read-payload", "anna", "")]
    assert "read-payload" in page(anna, "/audit")


@pytest.mark.parametrize("action", ["retry", "discard", "confirm"])
def test_one_dead_letter_is_decided_on_its_page(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter, action: str
) -> None:
    letter = rejected(engine, "key-a")
    answer = anna.post(f"{PREFIX}/changes/{letter}/{action}", data=WHY)
    assert answer.headers["location"] == f"{PREFIX}/changes/{letter}"
    ((name, request),) = writer.acts
    assert (name, request.change_id, request.operator, request.reason) == (action, letter, "anna", WHY["reason"])
    assert anna.post(f"{PREFIX}/changes/{letter}/{action}", data={"reason": " "}).status_code == 422


def test_a_corrected_copy_is_sent_from_the_page_of_the_payload(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    letter = rejected(engine, "key-a")
    assert "corrected copy" in anna.post(f"{PREFIX}/changes/{letter}/payload").text
    address = f"{PREFIX}/changes/{letter}/replace"
    assert anna.post(address, data=WHY | {"payload": "[1]"}).status_code == 422
    assert anna.post(address, data=WHY | {"payload": "{nothing"}).status_code == 400
    answer = anna.post(address, data=WHY | {"payload": '{"guest": "right"}'})
    copy = int(answer.headers["location"].rpartition("/")[2])
    assert copy > letter
    assert [(name, request.change_id) for name, request in writer.acts] == [("discard", letter)]
    assert f"a corrected copy of change {letter}" in page(anna, f"/changes/{copy}")


def test_marked_letters_are_decided_and_what_became_of_each_is_told(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    ids = [rejected(engine, f"k{number}", f"no such guest {number}", f"u{number}") for number in range(3)]
    shown = page(anna, "/dead-letters/group", reason="no such guest #")
    assert all(f'value="{change_id}"' in shown for change_id in ids)
    form = WHY | {"change_id": [str(ids[2]), str(ids[0])], "group": "no such guest #"}
    answer = anna.post(f"{PREFIX}/dead-letters/retry", data=form)
    assert answer.headers["location"] == f"{PREFIX}/dead-letters/group?reason=no+such+guest+%23"
    assert [(name, request.change_id) for name, request in writer.acts] == [("retry", ids[2]), ("retry", ids[0])]
    assert "retry: 2 decided" in page(anna, "/dead-letters")
    assert anna.post(f"{PREFIX}/dead-letters/retry", data=WHY).status_code == 422


def test_a_group_shows_one_of_oldhosts_texts_and_who_is_to_mend_what(anna: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "k1", "unknown lock type 17")
    rejected(engine, "k2", "unknown lock type 4", "7A")
    run_sql(engine, "UPDATE outbox_events SET source = IF(id = :id, 'api:front-desk', 'api:locks')", id=letter)
    shown = page(anna, "/dead-letters")
    assert "unknown lock type #" in shown
    assert "For example: <strong>unknown lock type 17</strong>" in shown
    assert "at its source (api:front-desk, api:locks)" in shown


def test_hundreds_of_long_reasons_are_a_page_of_the_largest_groups_and_the_way_to_the_others(
    anna: httpx.Client, engine: Engine
) -> None:
    run_sql(
        engine,
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, processed_at, outcome, error) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', '{}', "
        "'TXN', UTC_TIMESTAMP(6), 'DEAD', CONCAT(CHAR(97 + seq MOD 26), CHAR(97 + seq DIV 26), REPEAT('🏠', 1000)) "
        "FROM seq_1_to_300",
    )
    shown = page(anna, "/dead-letters")
    assert shown.count(">Retry all</summary>") == GROUPS_MAX
    assert len(shown.encode()) < 600_000
    assert "250 more dead letters have 250 other reasons" in shown
    assert f'href="{PREFIX}/changes?outcome=DEAD"' in shown


def test_held_changes_that_were_not_all_counted_are_so_many_or_more(
    anna: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected(engine, "k1", "no such guest")
    monkeypatch.setattr(dead_letters_page, "HELD_COUNTED_MAX", 0)
    assert "0 or more" in page(anna, "/dead-letters/group", reason="no such guest")


def test_whoever_may_retry_is_told_to_mend_the_cause_first(anna: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "k1", "no such guest")
    hint = "Correct the cause first: otherwise OldHost rejects"
    assert hint in page(anna, "/dead-letters")
    assert hint in page(anna, "/dead-letters/group", reason="no such guest")
    assert hint in page(anna, f"/changes/{letter}")


def test_a_group_is_decided_up_to_what_was_shown(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [rejected(engine, f"k{number}", f"no such guest {number}") for number in range(3)]
    assert "no such guest #" in page(anna, "/dead-letters")
    monkeypatch.setattr(http_limits, "LETTERS_AT_ONCE_MAX", 2)
    form = WHY | {"group": "no such guest #", "up_to": str(ids[-1])}
    assert anna.post(f"{PREFIX}/dead-letters/group/discard", data=form).status_code == 303
    assert [request.change_id for _, request in writer.acts] == ids[:2]
    assert "more are left" in page(anna, "/dead-letters")


def test_a_halt_shows_both_ways_and_is_ended_by_who_types_the_host_s_name(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    assert "There is nothing to decide" in page(anna, "/halt")
    halt(engine)
    shown = page(anna, "/halt")
    for word in ("OldHost went back", "Given up", "Sent again", "3 behind ours"):
        assert word in shown
    form = WHY | {"mode": "adopt", "epoch": 4, "host": HOST}
    for wrong in ({"host": "another"}, {"mode": "guess"}, {"epoch": ""}):
        assert anna.post(f"{PREFIX}/halt/resolve", data=form | wrong).status_code == 422
    assert writer.acts == []
    assert 'name="epoch" value="4"' in shown
    done = anna.post(f"{PREFIX}/halt/resolve", data=form)
    assert done.headers["location"] == f"{PREFIX}/halt"
    ((name, request),) = writer.acts
    assert (name, request.mode, request.epoch) == ("resolve", "adopt", 4)
    assert (request.operator, request.reason) == ("anna", WHY["reason"])


def test_a_rule_is_set_and_stands_in_the_audit(anna: httpx.Client, engine: Engine) -> None:
    form = WHY | {"event_type": "pool_closed", "priority_class": "EMERGENCY"}
    assert anna.post(f"{PREFIX}/rules/set", data=form).status_code == 303
    with engine.connect() as connection:
        assert class_of(connection, HOST, "pool_closed") is PriorityClass.EMERGENCY
    assert "pool_closed" in page(anna, "/rules")
    assert acts(engine) == [("set-rule", "anna", WHY["reason"])]
    assert anna.post(f"{PREFIX}/rules/set", data=form | {"priority_class": "SOON"}).status_code == 422


def test_a_scheduled_change_is_cancelled_with_a_reason(anna: httpx.Client, engine: Engine) -> None:
    recorded(engine, "later", not_before=datetime.now(UTC) + timedelta(days=1))
    assert "later" in page(anna, "/scheduled")
    assert anna.post(f"{PREFIX}/scheduled/cancel", data=WHY | {"key": "later"}).status_code == 303
    assert acts(engine) == [("cancel-scheduled", "anna", WHY["reason"])]
    assert anna.post(f"{PREFIX}/scheduled/cancel", data=WHY | {"key": "later"}).status_code == 409


def test_one_entity_is_flushed_from_its_page(anna: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    recorded(engine, "key-a")
    form = WHY | {"entity_type": "unit", "entity_id": "12B"}
    answer = anna.post(f"{PREFIX}/entity/flush", data=form)
    assert answer.headers["location"] == f"{PREFIX}/entities/unit/12B"
    ((name, request),) = writer.acts
    assert (name, request.entity_type, request.entity_id) == ("flush", "unit", "12B")


def test_what_others_wrote_is_escaped(anna: httpx.Client, engine: Engine) -> None:
    letter = rejected(engine, "key-a", "<script>alert(1)</script>", unit="<b>12B</b>")
    for path in ("/changes", f"/changes/{letter}", "/dead-letters", "/entities/unit/%3Cb%3E12B%3C%2Fb%3E"):
        shown = page(anna, path)
        assert "<script>alert" not in shown, path
        assert "<b>12B" not in shown, path
