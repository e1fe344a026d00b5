"""The page of alerts: what is open by kind, what people may do about it, and what ended and why."""

from __future__ import annotations

import httpx
import pytest
from markupsafe import escape
from sqlalchemy import Engine

from oldhost_sync.console.alerts_page import ALERTS, ALERTS_SHOWN
from oldhost_sync.console.app import ConsoleOptions
from oldhost_sync.console.next_steps import PAGES
from oldhost_sync.store.alerts import close_alert, list_alerts, raise_alert
from oldhost_sync.store.audit import list_acts
from tests.integration.api.conftest import HOST, ScriptedWriter, served
from tests.integration.console.conftest import an_app, browser

WHY = {"reason": "I look at it"}


def raised(engine: Engine, kind: str, severity: str, message: str, cause: str | None = None) -> int:
    """The id of a new alert."""
    with engine.begin() as connection:
        assert raise_alert(connection, HOST, kind, severity, message, dedupe_key=cause)
        return list_alerts(connection, HOST)[0].alert_id


def test_without_alerts_the_page_says_so(vera: httpx.Client) -> None:
    assert "No open alerts." in vera.get(ALERTS).text


def test_open_alerts_stand_under_their_kind_the_worst_kind_first(vera: httpx.Client, engine: Engine) -> None:
    raised(engine, "dead-letters", "warning", "2 of NO_SUCH_UNIT", "dead-letters:NO_SUCH_UNIT")
    raised(engine, "ban", "critical", "banned for 15 minutes")
    raised(engine, "dead-letters", "warning", "1 of BAD_DATE <x>", "dead-letters:BAD_DATE")
    page = vera.get(ALERTS).text
    order = ["banned for 15 minutes", 'id="dead-letters"', "1 of BAD_DATE &lt;x&gt;", "2 of NO_SUCH_UNIT"]
    assert sorted(order, key=page.index) == order
    assert page.count('id="dead-letters"') == 1


def test_a_kind_says_what_it_means_what_to_do_and_what_ends_it(vera: httpx.Client, engine: Engine) -> None:
    raised(engine, "no-worker", "critical", "nobody polls")
    page = vera.get(ALERTS).text
    for told in ("No worker takes the writer", "<strong>Next:</strong> Start one", "It ends when a worker took"):
        assert told in page


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_where_the_next_step_is_done_is_there_and_linked_from_the_alert(
    vera: httpx.Client, engine: Engine, kind: str
) -> None:
    raised(engine, kind, "warning", "something is wrong")
    link = PAGES[kind]
    assert vera.get(link.path).status_code == 200
    assert f'<a href="{escape(link.path)}">{link.title}</a>' in vera.get(ALERTS).text


def test_an_alert_of_another_release_is_shown_too(vera: httpx.Client, engine: Engine) -> None:
    raised(engine, "of-tomorrow", "info", "something new")
    assert "something new" in vera.get(ALERTS).text


def test_whoever_acknowledges_is_named_and_the_act_is_audited(anna: httpx.Client, engine: Engine) -> None:
    alert_id = raised(engine, "ban", "critical", "banned")
    answer = anna.post(f"{ALERTS}/{alert_id}/acknowledge", data=WHY)
    assert answer.status_code == 303
    assert "anna has been handling it since" in anna.get(ALERTS).text
    with engine.connect() as connection:
        (act,) = list_acts(connection, HOST, action="acknowledge-alert")
    assert (act.operator, act.reason) == ("anna", WHY["reason"])


def test_what_the_product_sees_itself_has_no_button_to_close_it_and_is_not_closed(
    anna: httpx.Client, engine: Engine
) -> None:
    alert_id = raised(engine, "ban", "critical", "banned")
    assert f"{ALERTS}/{alert_id}/close" not in anna.get(ALERTS).text
    assert anna.post(f"{ALERTS}/{alert_id}/close", data=WHY).status_code == 409
    assert "No open alerts" not in anna.get(ALERTS).text


def test_what_is_informational_is_closed_with_the_reason(anna: httpx.Client, engine: Engine) -> None:
    alert_id = raised(engine, "strays", "info", "3 strays")
    assert f"{ALERTS}/{alert_id}/close" in anna.get(ALERTS).text
    anna.post(f"{ALERTS}/{alert_id}/close", data=WHY)
    closed = anna.get(ALERTS, params={"state": "closed"}).text
    assert "anna: I look at it" in closed
    assert "No open alerts" in anna.get(ALERTS).text


def test_closed_alerts_say_how_long_they_lasted_and_what_ended_them(vera: httpx.Client, engine: Engine) -> None:
    raised(engine, "ban", "critical", "banned")
    with engine.begin() as connection:
        assert close_alert(connection, HOST, "ban")
    page = vera.get(ALERTS, params={"state": "all"}).text
    assert "OldHost takes operations again" in page
    assert "No open alerts" in page


def test_alerts_are_filtered_by_kind(vera: httpx.Client, engine: Engine) -> None:
    raised(engine, "ban", "critical", "banned")
    raised(engine, "strays", "info", "3 strays")
    page = vera.get(ALERTS, params={"kind": "strays"}).text
    assert "3 strays" in page
    assert "banned" not in page.replace("banned us", "")


@pytest.mark.parametrize(("webhook", "said"), [(False, "no webhook is set"), (True, "not sent to the webhook yet")])
def test_an_alert_that_was_not_delivered_says_whether_there_is_a_webhook(
    database_url: str, writer: ScriptedWriter, engine: Engine, webhook: bool, said: str
) -> None:
    raised(engine, "ban", "critical", "banned")
    with (
        served(an_app(database_url, writer, ConsoleOptions(webhook=webhook))) as address,
        browser(address, "vera") as vera,
    ):
        assert said in vera.get(ALERTS).text


def test_more_than_a_page_of_alerts_goes_on(vera: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(ALERTS_SHOWN + 1):
            raise_alert(connection, HOST, "dead-letters", "warning", f"reason {number}.", dedupe_key=f"dead:{number}")
    first = vera.get(ALERTS).text
    assert "reason 0." not in first
    cursor = first.partition("cursor=")[2].partition('"')[0]
    assert "reason 0." in vera.get(ALERTS, params={"cursor": cursor}).text


def test_a_viewer_may_look_and_not_act(vera: httpx.Client, engine: Engine) -> None:
    alert_id = raised(engine, "strays", "info", "3 strays")
    assert '<form method="post" action="/console/alerts' not in vera.get(ALERTS).text
    assert vera.post(f"{ALERTS}/{alert_id}/close", data=WHY).status_code == 403


def test_an_alert_that_is_not_there_is_a_page_that_says_so(anna: httpx.Client) -> None:
    assert anna.post(f"{ALERTS}/4711/acknowledge", data=WHY).status_code == 404
