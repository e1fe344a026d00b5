"""A ban, a halt and a pause on the pages: why, since when, what is decided, and which acts make sense."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.oldhost.ledger import NOT_ASKED
from oldhost_sync.policy.rules.operator_act import OperatorAct, at_the_terminal
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.ledger.operator_commands import decide
from tests.integration.api.conftest import HOST, ScriptedWriter
from tests.integration.console.test_lookups import page, recorded, run_sql

pytestmark = pytest.mark.mariadb
NOT_BY_US = "By the ledger no send of ours was a replay"


def ban(engine: Engine) -> None:
    run_sql(
        engine,
        "INSERT INTO nonce_ledger (host, next_nonce, last_applied_nonce, banned_at, banned_until) VALUES (:host, 9, 8, "
        "UTC_TIMESTAMP(6) - INTERVAL 300 SECOND, UTC_TIMESTAMP(6) + INTERVAL 600 SECOND)",
        host=HOST,
    )


def halt(engine: Engine, writer: ScriptedWriter, expected: int = 11) -> None:
    """In a ban."""
    ban(engine)
    run_sql(
        engine, f"UPDATE nonce_ledger SET halted = 'another wrote, then decide', halted_expected_nonce = {expected}"
    )
    with engine.begin() as connection:
        raise_alert(connection, HOST, "halted", "critical", "another wrote", dedupe_key="halt")
    stopped(writer, "HALTED")


def stopped(writer: ScriptedWriter, state: str, **more: Any) -> None:
    breaker = {"state": state, "reason": "", "remaining_ms": 600_000}
    writer.status |= {"state": state, "breaker": breaker} | more


def decided(engine: Engine) -> None:
    """While OldHost can't be asked."""
    act = OperatorAct(HOST, "resolve", "bob", "it was Carol", mode="adopt")
    with engine.begin() as connection:
        assert decide(connection, act, NOT_ASKED).refused == ""


def banner(client: httpx.Client) -> str:
    found = re.search(r'<div class="banner".*?</div>', page(client, ""), re.DOTALL)
    assert found
    return found[0]


def test_a_ban_says_why_as_far_as_the_ledger_knows(anna: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    ban(engine)
    stopped(writer, "BANNED")
    assert NOT_BY_US in banner(anna)
    assert NOT_BY_US in page(anna, "/sessions")


def test_a_ban_lasts_at_least_until_its_end_is_asked_for(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    """OldHost's ban may be longer than the one that was reckoned with."""
    ban(engine)
    stopped(writer, "BANNED")
    assert "left, at least until" in banner(anna)
    run_sql(engine, "UPDATE nonce_ledger SET banned_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    with engine.begin() as connection:
        raise_alert(connection, HOST, "ban", "critical", "banned", dedupe_key="ban")
    writer.status |= {"state": "CONNECTING", "breaker": {"state": "HALF_OPEN", "reason": "", "remaining_ms": 0}}
    assert "The ban may be over: OldHost is being asked." in banner(anna)


def test_without_the_writer_the_lanes_are_the_database_s(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    for number in range(3):
        recorded(engine, f"key-{number}")
    writer.problem = writer_away("no worker takes its tasks", "no-worker")
    lanes = page(anna, "").split("<h2>Lanes</h2>")[1].split("</table>")[0]
    assert re.search(r"<td[^>]*>3</td>", lanes)
    assert "The writer does not answer; these figures are from the database" in page(anna, "")


def test_a_halt_in_a_ban_shows_both(anna: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    halt(engine, writer)
    shown = banner(anna)
    assert shown.index("HALTED") < shown.index("Another wrote") < shown.index("BANNED") < shown.index(NOT_BY_US)
    assert "HALTED and BANNED" in head_of_every_page(anna)
    assert "OldHost also bans us" in page(anna, "/halt")


def head_of_every_page(client: httpx.Client) -> str:
    """As the live stream sends it first."""
    with client.stream("GET", f"{PREFIX}/stream") as stream:
        return next(line for line in stream.iter_lines() if "chip" in line)


@pytest.mark.parametrize(("paused", "offered"), [(False, "Pause"), (True, "Resume")])
def test_resume_is_offered_while_a_pause_holds_and_pause_while_none_does(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter, paused: bool, offered: str
) -> None:
    """The style sheet goes by the banner's mark, which changes while the page is open."""
    ban(engine)
    stopped(writer, "PAUSED" if paused else "BANNED", paused={"operator": "bob", "reason": "quiet"} if paused else None)
    if paused:
        with engine.begin() as connection:
            record_act(connection, host=HOST, action="pause", operator=at_the_terminal("bob"), reason="quiet")
    assert ("data-paused" in banner(anna)) is (offered == "Resume")


def test_resume_says_that_it_ends_no_ban(anna: httpx.Client) -> None:
    assert "This does not end a ban or a halt." in page(anna, "")


def test_a_halt_draws_the_conclusion_and_says_that_both_ways_do_the_same(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    halt(engine, writer)
    shown = page(anna, "/halt")
    assert "OldHost&#39;s nonce is 2 beyond ours: 2 operations that another client wrote" in shown
    assert "Both ways have the same effect here" in shown


def test_a_halt_whose_ways_differ_does_not_say_that_they_are_the_same(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    halt(engine, writer, expected=7)
    shown = page(anna, "/halt")
    assert "OldHost&#39;s nonce is 2 behind ours" in shown
    assert "the same effect" not in shown


def test_a_halt_that_is_decided_shows_by_whom_and_offers_no_way_more(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    halt(engine, writer)
    assert f"{PREFIX}/halt/resolve" in page(anna, "/halt")
    decided(engine)
    shown = page(anna, "/halt")
    assert re.search(r"Decided by bob at\s+<time [^>]+>[^<]+</time>: adopt\.", shown)
    assert "The writer acts on it" in shown
    assert f"{PREFIX}/halt/resolve" not in shown
    assert "Resend the ledger&#39;s operations" not in shown


@pytest.mark.parametrize("path", ["", "/alerts"])
def test_the_alert_of_a_halt_that_is_decided_asks_for_no_decision(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter, path: str
) -> None:
    halt(engine, writer)
    assert "then decide: adopt OldHost&#39;s count, or resend" in page(anna, path)
    decided(engine)
    shown = page(anna, path)
    assert "Nothing to do: bob decided about the halt" in shown
    assert "then decide: adopt OldHost&#39;s count, or resend" not in shown


def test_without_a_writer_a_halt_that_is_decided_asks_for_no_decision(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter
) -> None:
    halt(engine, writer)
    decided(engine)
    writer.problem = writer_away("no worker takes its tasks", "no-worker")
    shown = banner(anna)
    assert shown.index("NO WRITER") < shown.index("bob decided about the halt")
    assert "then decide" not in shown


def forecast(
    client: httpx.Client, writer: ScriptedWriter, state: str, left_ms: int = 0, *, late: int = 0, waiting: int = 0
) -> str:
    """What the overview foretells of emergencies."""
    stopped(writer, state, forecast=writer.status["forecast"] | {"emergencies": waiting, "late_emergencies": late})
    writer.status["breaker"]["remaining_ms"] = left_ms
    found = re.search(r'<ul class="promises">\s*<li>(.*?)</li>', page(client, ""), re.DOTALL)
    assert found
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


def test_the_forecast_begins_with_the_ban_that_runs(anna: httpx.Client, writer: ScriptedWriter) -> None:
    promise = "emergencies within 30 s"
    assert forecast(anna, writer, "SENDING") == f"kept {promise}"
    soon = f"at risk {promise}: new ones wait until OldHost takes operations again"
    assert forecast(anna, writer, "BANNED", 20_000) == soon
    assert forecast(anna, writer, "BANNED", 90_000) == (
        f"will break {promise}: any new one in the next 1 min will be late"
    )
    assert forecast(anna, writer, "BANNED", 20_000, late=20, waiting=90) == (
        f"will break {promise}: 20 of 90 waiting will be late"
    )
    assert forecast(anna, writer, "BANNED", 90_000, late=90, waiting=90) == (
        f"will break {promise}: 90 of 90 waiting will be late, and any new one in the next 1 min"
    )


def test_while_only_somebody_can_end_it_no_promise_is_said_to_be_kept(
    anna: httpx.Client, writer: ScriptedWriter
) -> None:
    assert "at risk" in forecast(anna, writer, "PAUSED")
    assert "wait until an operator decides about the halt" in forecast(anna, writer, "HALTED")
    assert "3 of 4 waiting will be late even if an operator resumes now" in forecast(
        anna, writer, "PAUSED", late=3, waiting=4
    )


def test_an_entity_s_change_shows_what_it_waits_for_and_is_due_only_in_the_debounce(
    anna: httpx.Client, engine: Engine, writer: ScriptedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(engine, "key-a")
    places = (1, "in its lane", "the ban to end", 0), (2, "debounced", "the debounce to end, the ban to end", 90_000)
    names = "change_id", "place", "waits_for", "due_in_ms"
    changes = [{"event_type": "e", **dict(zip(names, each, strict=True))} for each in places]

    async def query(name: str, *_: object) -> Any:
        return {"changes": changes} if name == "find" else writer.status

    monkeypatch.setattr(writer, "query", query)
    shown = page(anna, "/entities/unit/12B")
    assert "<td>the ban to end</td>" in shown
    assert "1 min 30 s" in shown
    assert "0.0 s" not in shown


def test_the_api_tells_what_else_stops_the_writer(anna: httpx.Client, engine: Engine, writer: ScriptedWriter) -> None:
    halt(engine, writer)
    told = anna.get("/api/situation", headers={"Authorization": "Bearer vera"}).json()
    assert (told["word"], [stop["word"] for stop in told["also"]]) == ("HALTED", ["BANNED"])
