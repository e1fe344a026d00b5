"""What people do in the console, in a browser and against the real product: each act, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, expect
from sqlalchemy.engine import Connection

from oldhost_sync.console.paths import LINK, PREFIX, SIGN_IN
from oldhost_sync.console.sign_in_link import offer_link
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.transactions import run_in_transaction
from tests.browser.conftest import Stage
from tests.browser.stage import MARKS, OPERATOR, VIEWER, address_of, begin, state_of
from tests.browser.visitor import Visitor, visiting
from tests.faults.product import Product
from tests.integration.api.conftest import ScriptedWriter
from tests.integration.console.conftest import an_app

pytestmark = MARKS

WHY = "OldHost's people asked for it"
# Longer than any look of the live stream, and soon over.
BAN_SECONDS = 10.0
T = TypeVar("T")
ZONE = "Asia/Kathmandu"


@pytest.fixture(scope="module")
def running(stage: Stage) -> Iterator[Product]:
    """LWW changes wait for a flush; an idle writer compares nonces every second."""
    with stage(debounce_seconds=600.0, max_wait_seconds=600.0, probe_seconds=1.0) as product:
        begin(product)
        product.api.change("first", "booking_created", {})
        product.wait_for("the first change", lambda: product.all_have_fates(1), 60)
        yield product


@pytest.fixture
def product(running: Product) -> Iterator[Product]:
    """It sends, and OldHost is well, whatever the test before did."""
    running.wait_for("sending", lambda: state_of(running) == "SENDING", 60)
    yield running
    running.no_faults()
    if state_of(running) == "PAUSED":
        running.api.call("POST", "/api/writer/resume", {"reason": "the test is over"})


@pytest.fixture(scope="module")
def done() -> set[str]:
    """Where the forms of all tests went."""
    return set()


@pytest.fixture
def anna(browser: Browser, product: Product, done: set[str]) -> Iterator[Visitor]:
    with visiting(browser, address_of(product), OPERATOR, timezone_id=ZONE) as visitor:
        yield visitor
        done |= visitor.posted
        assert visitor.taken_faults() == []


@pytest.fixture
def anyone(browser: Browser, product: Product, done: set[str]) -> Iterator[Visitor]:
    """Nobody who is signed in."""
    with visiting(browser, address_of(product)) as visitor:
        yield visitor
        done |= visitor.posted


def dead_letter(product: Product, unit: str, reason: str = "no such guest") -> int:
    """A change of the unit that OldHost rejects."""
    product.fault("reject", label=unit, rule={"entity_id": unit}, reason=reason)
    change_id = product.api.change(unit, "booking_created", {"guest": unit})
    product.wait_for("the rejection", lambda: product.fates()[change_id] == "DEAD")
    return change_id


def in_database(product: Product, act: Callable[[Connection], T]) -> T:
    engine = create_engine(product.settings.need_database_url(), pool_size=1)
    try:
        return run_in_transaction(engine, act)
    finally:
        engine.dispose()


def audited(product: Product, action: str) -> list[tuple[str, str]]:
    rows = product.sql("SELECT operator, reason FROM operator_audit WHERE action = %s ORDER BY id", action)
    return [(row["operator"], row["reason"]) for row in rows]


# ----------------------------------------------------------------------------------------------------------- signing in


def test_by_a_token_one_comes_to_the_page_that_one_wanted(anyone: Visitor) -> None:
    anyone.open("/rules")
    expect(anyone.page.get_by_label("Token")).to_be_focused()
    anyone.page.keyboard.type(VIEWER)
    anyone.page.keyboard.press("Enter")
    expect(anyone.page).to_have_url(f"{anyone.address}{PREFIX}/rules")
    expect(anyone.page.locator(".who-name")).to_have_text(f"{VIEWER} viewer")
    assert anyone.taken_faults() == []


def test_a_wrong_token_is_refused_in_words(anyone: Visitor) -> None:
    anyone.open()
    anyone.page.get_by_label("Token").fill("nobody's")
    anyone.page.get_by_role("button", name="Sign in").click()
    expect(anyone.page.get_by_role("alert")).to_contain_text("not a token of a viewer or an operator")
    assert anyone.grave_findings() == []


def test_the_link_that_up_prints_signs_in_once(anyone: Visitor, product: Product) -> None:
    token = next(each for each in product.settings.api_tokens if each.name == OPERATOR)
    secret = in_database(product, lambda connection: offer_link(connection, product.host, token))
    anyone.open(f"{LINK}?secret={secret}")
    expect(anyone.page).to_have_url(anyone.address + PREFIX)
    expect(anyone.page.locator(".who-name")).to_have_text(f"{OPERATOR} ops")
    assert anyone.taken_faults() == []
    anyone.open(f"{LINK}?secret={secret}")
    expect(anyone.page.get_by_role("alert")).to_contain_text("This link was used already")


def test_who_has_signed_out_sees_no_page(anna: Visitor) -> None:
    anna.open()
    anna.page.get_by_role("button", name="Sign out").click()
    expect(anna.notice).to_have_text("You are signed out.")
    anna.open("/changes")
    expect(anna.page).to_have_url(f"{anna.address}{SIGN_IN}?next={PREFIX}/changes")


# ---------------------------------------------------------------------------------------------------------------- live


def test_a_ban_is_shown_without_a_reload_and_goes_by_itself(anna: Visitor, product: Product) -> None:
    anna.open("/rules").evaluate("window.sameDocument = true")
    chip = anna.page.locator(".chip")
    expect(chip).to_contain_text("SENDING")
    product.admin("POST", "/actions/ban", {"seconds": BAN_SECONDS})
    product.api.change("banned", "booking_created", {})
    expect(chip).to_contain_text("BANNED")
    expect(chip).to_contain_text("SENDING")
    assert anna.page.evaluate("window.sameDocument")


def test_the_overview_follows_what_waits(anna: Visitor, product: Product) -> None:
    anna.open()
    books = anna.page.locator("#part-books")
    accepted = len(product.fates())
    expect(books.locator("dd").first).to_have_text(str(accepted))
    product.api.change("counted", "booking_created", {})
    expect(books.locator("dd").first).to_have_text(str(accepted + 1))


def test_a_page_says_when_it_is_not_live_and_comes_back(anna: Visitor, product: Product) -> None:
    anna.open()
    live = anna.page.locator("#live")
    expect(live).to_have_text("Live")
    product.children["api"].kill()
    expect(live).to_contain_text("Not live since")
    expect(anna.page.locator("body[data-stale]")).to_be_attached()
    anna.take_picture("not live")
    product.start_api()
    expect(live).to_have_text("Live")
    expect(anna.page.locator("body[data-stale]")).not_to_be_attached()
    assert anna.taken_faults()


# ----------------------------------------------------------------------------------------------------- the whole writer


def test_a_pause_holds_with_its_reason_until_somebody_resumes(anna: Visitor, product: Product) -> None:
    anna.open()
    anna.act("Pause", WHY)
    expect(anna.notice).to_be_visible()
    expect(anna.page.locator(".banner strong").first).to_have_text("PAUSED")
    expect(anna.page.locator(".banner")).to_contain_text(f"{OPERATOR} paused it: {WHY}.")
    assert anna.grave_findings() == []
    anna.take_picture("paused")
    change_id = product.api.change("held back", "booking_created", {})
    anna.act("Resume", "they are done")
    expect(anna.page.locator(".banner strong").first).to_have_text("SENDING")
    product.wait_for("the change", lambda: product.fates()[change_id] == "APPLIED")
    assert (OPERATOR, WHY) in audited(product, "pause")
    assert (OPERATOR, "they are done") in audited(product, "resume")


def test_an_act_needs_a_reason(anna: Visitor, product: Product) -> None:
    before = audited(product, "pause")
    anna.open()
    form = anna.form_of("Pause")
    form.locator("summary").click()
    form.locator("form button").click()
    reason = form.get_by_label("Reason")
    assert reason.evaluate("field => field.validity.valueMissing")
    expect(reason).to_be_focused()
    assert audited(product, "pause") == before


def test_without_javascript_an_operator_pauses_and_resumes(browser: Browser, product: Product) -> None:
    with visiting(browser, address_of(product), OPERATOR, java_script_enabled=False) as visitor:
        visitor.open()
        visitor.act("Pause", "without a script")
        expect(visitor.page.locator(".banner strong").first).to_have_text("PAUSED")
        visitor.act("Resume", "without a script")
        product.wait_for("sending", lambda: state_of(product) == "SENDING")
        visitor.page.reload()
        expect(visitor.page.locator(".banner strong").first).to_have_text("SENDING")
        assert visitor.taken_faults() == []


def test_a_flush_sends_what_the_debounce_holds_back(anna: Visitor, product: Product) -> None:
    ids = [product.api.change(unit, "unit_status_changed", {"status": "Clean"}) for unit in ("F-1", "F-2")]
    anna.open("/entities/unit/F-1")
    product.wait_for("the writer to hold them", lambda: product.status()["debounced"] == 2)
    anna.act("Flush this entity", WHY)
    product.wait_for("the one", lambda: product.fates()[ids[0]] == "APPLIED")
    assert product.fates()[ids[1]] is None
    anna.open()
    anna.act("Flush", WHY)
    product.wait_for("the other", lambda: product.fates()[ids[1]] == "APPLIED")


# ------------------------------------------------------------------------------------------------------------ decisions


def test_a_dead_letter_is_retried_and_what_is_held_behind_it_follows(anna: Visitor, product: Product) -> None:
    dead = dead_letter(product, "D-1")
    behind = product.api.change("D-1", "checked_in", {})
    anna.open(f"/changes/{behind}")
    expect(anna.main).to_contain_text("Waits for")
    anna.main.get_by_role("link", name="D-1").click()
    anna.main.locator("[data-tone=bad]").get_by_role("link", name=str(dead)).click()
    expect(anna.main).to_contain_text("OldHost's reason: no such guest")
    anna.take_picture("dead letter")
    product.no_faults()
    anna.act("Retry", WHY)
    expect(anna.notice).to_be_visible()
    product.wait_for("both", lambda: {product.fates()[dead], product.fates()[behind]} == {"APPLIED"})
    anna.page.reload()
    expect(anna.main.locator(".head .badge")).to_have_text("APPLIED")


def test_a_dead_letter_is_discarded(anna: Visitor, product: Product) -> None:
    dead = dead_letter(product, "D-2")
    anna.open(f"/changes/{dead}")
    anna.act("Discard", WHY)
    expect(anna.main.locator(".head .badge")).to_have_text("DISCARDED")
    assert (OPERATOR, WHY) in audited(product, "discard")


def test_an_unsure_letter_is_confirmed(anna: Visitor, product: Product) -> None:
    product.fault("answer", label="D-9", next=1, rule={"entity_id": "D-9"}, body="oops", nonce="applied")
    unsure = product.api.change("D-9", "booking_created", {"guest": "D-9"})
    product.wait_for("the answer", lambda: product.fates()[unsure] == "DEAD")
    anna.open(f"/changes/{unsure}")
    anna.act("Confirm", WHY)
    expect(anna.main.locator(".head .badge")).to_have_text("APPLIED")
    assert (OPERATOR, WHY) in audited(product, "confirm")


def test_a_corrected_copy_goes_instead_of_a_dead_letter(anna: Visitor, product: Product) -> None:
    dead = dead_letter(product, "D-3")
    anna.open(f"/changes/{dead}")
    anna.page.get_by_role("button", name="Show the payload").click()
    expect(anna.main.locator("pre")).to_contain_text('"guest": "D-3"')
    assert anna.grave_findings() == []
    anna.take_picture("payload")
    product.no_faults()
    anna.act("Send a corrected copy", WHY, payload=json.dumps({"guest": "corrected"}))
    expect(anna.page).not_to_have_url(f"{anna.address}{PREFIX}/changes/{dead}/replace")
    copy = int(anna.page.url.rpartition("/")[2])
    product.wait_for("the copy", lambda: product.fates()[copy] == "APPLIED")
    assert product.fates()[dead] == "DISCARDED"
    assert {"guest": "corrected"} in [
        record["body"].get("payload") for record in product.admin("GET", "/records")["records"]
    ]


def test_marked_letters_are_decided_and_then_the_rest_of_their_reason(anna: Visitor, product: Product) -> None:
    ids = [dead_letter(product, f"D-{number}", "the room is closed") for number in range(4, 8)]
    anna.open("/dead-letters")
    anna.take_picture("dead letters")
    anna.main.get_by_role("link", name="the room is closed").click()
    expect(anna.main.locator("tbody tr")).to_have_count(4)
    for change_id in ids[:2]:
        anna.page.get_by_label(f"Change {change_id}").check()
    anna.page.locator("[name=reason]").fill(WHY)
    anna.page.get_by_role("button", name="Discard the marked").click()
    expect(anna.notice).to_contain_text("discard: 2 decided")
    assert [product.fates()[each] for each in ids] == ["DISCARDED", "DISCARDED", "DEAD", "DEAD"]
    product.no_faults()
    anna.page.get_by_label(f"Change {ids[2]}").check()
    anna.page.locator("[name=reason]").fill(WHY)
    anna.page.get_by_role("button", name="Retry the marked").click()
    expect(anna.notice).to_contain_text("retry: 1 decided")
    product.wait_for("the retried one", lambda: product.fates()[ids[2]] == "APPLIED")
    anna.open("/dead-letters")
    anna.act("Discard all", WHY)
    expect(anna.notice).to_contain_text("discard: 1 decided")
    assert product.fates()[ids[3]] == "DISCARDED"


def test_all_letters_of_a_reason_are_retried(anna: Visitor, product: Product) -> None:
    ids = [dead_letter(product, f"D-{number}", "the system is down") for number in (8, 9)]
    product.no_faults()
    anna.open("/dead-letters")
    anna.act("Retry all", WHY)
    expect(anna.notice).to_contain_text("retry: 2 decided")
    product.wait_for("both", lambda: {product.fates()[each] for each in ids} == {"APPLIED"})


def test_a_scheduled_change_is_cancelled(anna: Visitor, product: Product) -> None:
    body = {"entity_type": "unit", "entity_id": "S-1", "event_type": "checked_in", "payload": {}}
    later = body | {"not_before": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    assert product.api.call("POST", "/api/changes", later, key="later-1")[0] == 202
    anna.open("/changes")
    anna.page.get_by_role("link", name="Scheduled changes").click()
    anna.take_picture("scheduled")
    anna.act("Cancel", WHY)
    expect(anna.notice).to_have_text("later-1 is cancelled.")
    expect(anna.main).to_contain_text("Nothing is scheduled.")


def test_a_rule_is_set_and_holds_for_the_next_change(anna: Visitor, product: Product) -> None:
    anna.open("/rules")
    form = anna.form_of("Set a rule")
    form.locator("summary").click()
    form.get_by_label("Event type").fill("roof_is_off")
    form.get_by_label("Class").select_option("EMERGENCY")
    form.get_by_label("Reason").fill(WHY)
    form.get_by_role("button").click()
    expect(anna.notice).to_have_text("roof_is_off is EMERGENCY from the next change on.")
    expect(anna.main.get_by_role("row", name="roof_is_off")).to_contain_text("EMERGENCY")
    product.api.change("R-1", "roof_is_off", {})
    (row,) = product.sql("SELECT priority_class FROM outbox_events WHERE event_type = 'roof_is_off'")
    assert row["priority_class"] == "EMERGENCY"


def test_an_alert_is_looked_after_and_then_closed(anna: Visitor, product: Product) -> None:
    lost = "signals-lost", "critical", "a run's history is gone"
    in_database(product, lambda connection: raise_alert(connection, product.host, *lost))
    anna.open("/alerts?kind=signals-lost")
    anna.act("Acknowledge", WHY)
    expect(anna.notice).to_contain_text(f"{OPERATOR} is handling it")
    anna.open("/alerts?kind=signals-lost")
    expect(anna.main).to_contain_text(f"{OPERATOR} has been handling it since")
    anna.act("Close", "their people have sent it again")
    expect(anna.notice).to_contain_text("it is closed")
    anna.page.get_by_label("Shown").select_option("closed")
    anna.page.get_by_role("button", name="Show").click()
    expect(anna.main.get_by_role("row", name="signals-lost")).to_contain_text("their people have sent it again")


def test_a_halt_is_shown_at_once_and_ended_by_who_types_the_host_s_name(anna: Visitor, product: Product) -> None:
    anna.open()
    product.admin("POST", "/actions/foreign-write", {"count": 2})
    expect(anna.page.locator(".chip")).to_contain_text("HALTED")
    expect(anna.page.locator(".banner strong").first).to_have_text("HALTED")
    anna.page.reload()
    assert anna.grave_findings() == []
    anna.take_picture("halted")
    anna.page.locator(".banner").get_by_role("link", name="Compare both decisions").click()
    expect(anna.main).to_contain_text("another client wrote")
    assert anna.grave_findings() == []
    assert anna.beyond(400) == 0
    anna.take_picture("halt 400")
    assert anna.beyond(1400) == 0
    anna.take_picture("halt 1400")
    anna.act("Adopt OldHost's count", WHY, host="another-host")
    expect(anna.main).to_contain_text("nothing was decided")
    assert state_of(product) == "HALTED"
    assert any("422" in fault for fault in anna.taken_faults())
    anna.open("/halt")
    anna.act("Adopt OldHost's count", WHY, host=product.host)
    expect(anna.notice).to_be_visible()
    expect(anna.page.locator(".chip")).to_contain_text("SENDING")
    assert audited(product, "resolve") == [(OPERATOR, WHY)]


# -------------------------------------------------------------------------------------------------------- at the screen


def test_the_colours_are_as_one_chooses_on_every_page(anna: Visitor) -> None:
    def colour() -> str:
        return str(anna.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    anna.page.emulate_media(color_scheme="light")
    anna.open("/rules")
    light = colour()
    anna.page.get_by_role("button", name="Dark").click()
    expect(anna.page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    dark = colour()
    assert dark != light
    anna.open("/audit")
    assert colour() == dark
    anna.page.get_by_role("button", name="Auto").click()
    expect(anna.page.get_by_role("button", name="Auto")).to_have_attribute("aria-pressed", "true")
    assert colour() == light
    anna.page.emulate_media(color_scheme="dark")
    assert colour() == dark


def test_times_are_utc_until_one_asks_for_local_ones(anna: Visitor) -> None:
    anna.open("/audit")
    made = anna.page.locator("footer time")
    moment = datetime.fromisoformat(made.get_attribute("datetime") or "")
    expect(made).to_have_text(f"{moment:%H:%M:%S}")
    anna.page.get_by_role("button", name="UTC").click()
    local = moment.astimezone(ZoneInfo(ZONE))
    expect(made).to_have_text(f"{local:%H:%M:%S}")
    expect(anna.page.locator("footer [data-zone-name]")).to_have_text("local time")
    anna.page.reload()
    expect(anna.page.get_by_role("button", name="Local time")).to_be_visible()


def test_a_key_is_copied_by_its_button(anna: Visitor, product: Product) -> None:
    product.api.change("C-1", "booking_created", {}, key="a-key-to-copy")
    anna.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    anna.open("/changes?entity_id=C-1")
    anna.page.get_by_role("button", name="Copy a-key-to-copy").click()
    expect(anna.main.locator("button.copy")).to_have_text("Copied")
    assert anna.page.evaluate("navigator.clipboard.readText()") == "a-key-to-copy"


def test_what_does_not_exist_is_said_on_a_page_that_leads_back(anna: Visitor) -> None:
    anna.open("/changes/999999999")
    expect(anna.main.locator("h1")).to_be_visible()
    assert any("404" in fault for fault in anna.taken_faults())
    assert anna.grave_findings() == []
    anna.take_picture("problem")
    anna.main.get_by_role("link", name="To the overview").click()
    expect(anna.page).to_have_url(anna.address + PREFIX)
    assert anna.taken_faults() == []


# ------------------------------------------------------------------------------------------------------ by keys alone

TABS_MAX = 60


def tab_to(visitor: Visitor, selector: str) -> None:
    """Press Tab until what `selector` names has the focus."""
    for _ in range(TABS_MAX):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"{TABS_MAX} times Tab did not lead to {selector}")


def test_the_first_key_leads_past_the_navigation(anna: Visitor) -> None:
    anna.open("/rules")
    anna.page.keyboard.press("Tab")
    expect(anna.page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(anna.page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    anna.page.keyboard.press("Enter")
    anna.page.keyboard.press("Tab")
    expect(anna.main.locator(":focus")).to_be_visible()


def test_by_keys_alone_one_comes_to_a_page_and_does_an_act(anna: Visitor, product: Product) -> None:
    anna.open()
    tab_to(anna, f"nav a[href='{PREFIX}/rules']")
    anna.page.keyboard.press("Enter")
    expect(anna.page).to_have_url(f"{anna.address}{PREFIX}/rules")
    tab_to(anna, "summary")
    anna.page.keyboard.press("Enter")
    expect(anna.page.locator("[name=event_type]")).to_be_focused()
    anna.page.keyboard.type("by_keys_alone")
    tab_to(anna, "select")
    anna.page.keyboard.type("LWW")
    tab_to(anna, "[name=reason]")
    anna.page.keyboard.type(WHY)
    anna.page.keyboard.press("Enter")
    expect(anna.notice).to_have_text("by_keys_alone is LWW from the next change on.")


def test_escape_closes_a_form_and_leads_back_to_its_button(anna: Visitor) -> None:
    anna.open()
    tab_to(anna, "summary")
    anna.page.keyboard.press("Space")
    form = anna.form_of("Pause")
    expect(form.get_by_label("Reason")).to_be_focused()
    anna.page.keyboard.press("Escape")
    expect(form.get_by_label("Reason")).not_to_be_visible()
    expect(form.locator("summary")).to_be_focused()


def test_a_live_update_does_not_take_the_focus_away(anna: Visitor, product: Product) -> None:
    anna.open()
    lanes = anna.page.locator("#part-lanes .scroll")
    lanes.focus()
    product.api.change("focus", "unit_status_changed", {"status": "Dirty"})
    expect(anna.page.locator("#part-lanes")).to_contain_text("held back by the debounce1")
    expect(lanes).to_be_focused()


# Last: it is about the tests above.
def test_every_act_of_the_console_was_done(running: Product, done: set[str]) -> None:
    """An act that comes later needs a test here, too. Temporal's UI asks to decode, no person does."""
    app = an_app(running.settings.need_database_url(), ScriptedWriter())
    acts = [
        route
        for route in app.routes
        if isinstance(route, APIRoute) and "POST" in (route.methods or ()) and route.path.startswith(PREFIX)
        if not route.path.startswith(f"{PREFIX}/codec/")
    ]
    assert [act.path for act in acts if not any(act.path_regex.match(path) for path in done)] == []
