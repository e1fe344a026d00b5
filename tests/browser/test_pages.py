"""Every page of the console over a house with 100,000 changes, under a ban: each is opened once, and asked all of this.

The pages are those of the navigation, and what one reaches from them by links; a page that is added is found there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, expect

from oldhost_sync.api.http_limits import LETTERS_AT_ONCE_MAX
from oldhost_sync.console.app import PAGES
from oldhost_sync.console.door import STREAM
from oldhost_sync.console.paths import ASSETS, LINK, PREFIX, SIGN_IN
from tests.browser import crowd
from tests.browser.conftest import Stage
from tests.browser.stage import MARKS, OPERATOR, VIEWER, address_of, begin, state_of
from tests.browser.visitor import Visitor, visiting
from tests.faults.product import Product
from tests.integration.api.conftest import ScriptedWriter
from tests.integration.console.conftest import an_app

pytestmark = MARKS

NARROW, WIDE = 400, 1400
# OldHost takes some operations, then bans for longer than the tests take.
OPERATIONS, BAN_SECONDS = 30, 3_600.0
_VALUES = "all => all.map(each => each.value)"
# Links lead to more of the same without end: so many pages are opened at most.
PAGES_MAX = 60
# What no link leads to, or not to the one that shows most.
ALSO = (
    f"{PREFIX}/changes/{crowd.DEAD_ID}",
    f"{PREFIX}/entities/unit/{crowd.UNIT}",
    f"{PREFIX}/changes/{crowd.SUPERSEDED_ID}",
    f"{PREFIX}/search?q=Sea+view+1",
    f"{PREFIX}/changes?outcome=DEAD&entity_type=unit",
    f"{PREFIX}/plan?changes=200&units=50&duration_s=600&bursts=1&burst_changes=50&ban_at_s=300&ban_s=60",
    f"{PREFIX}/alerts?state=all",
    SIGN_IN,
)


@pytest.fixture(scope="module")
def product(stage: Stage) -> Iterator[Product]:
    with stage(ban_seconds=BAN_SECONDS) as product:
        crowd.fill(product)
        product.fault("ban", skip=OPERATIONS, seconds=BAN_SECONDS)
        begin(product)
        product.wait_for("the ban", lambda: state_of(product) == "BANNED", 60)
        product.api.change(crowd.UNIT, "guest_locked_out", {"door": "is shut"})
        product.wait_for("the backlog", lambda: product.status()["waiting"] > crowd.OUTSTANDING // 2, 60)
        yield product


@dataclass
class Sight:
    """What was found on one page. `route`: the template of its address. `grave`: by theme, what axe-core found."""

    path: str
    route: str
    title: str
    links: list[str]
    faults: list[str] = field(default_factory=list)
    grave: dict[str, list[str]] = field(default_factory=dict)
    beyond: dict[int, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    spilled: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)


class Routes:
    """The addresses of all pages, from the product itself."""

    def __init__(self, product: Product) -> None:
        app = an_app(product.settings.need_database_url(), ScriptedWriter())
        no_page = (ASSETS, STREAM, LINK)
        self._routes = [
            route
            for route in app.routes
            if isinstance(route, APIRoute) and "GET" in (route.methods or ())
            if route.path.startswith(PREFIX) and not route.path.startswith(no_page)
        ]

    @property
    def paths(self) -> set[str]:
        return {route.path for route in self._routes}

    def of(self, path: str) -> str:
        """The template of the page at `path`; empty where there is none."""
        plain = urlsplit(path).path
        return next((route.path for route in self._routes if route.path_regex.match(plain)), "")

    def kind(self, path: str) -> tuple[str, ...]:
        """Pages of one kind differ by an id or by a value that is filled in."""
        return (self.of(path), *sorted(name for name, value in parse_qsl(urlsplit(path).query)))


@pytest.fixture(scope="module")
def routes(product: Product) -> Routes:
    return Routes(product)


@pytest.fixture(scope="module")
def sights(browser: Browser, product: Product, routes: Routes) -> dict[str, Sight]:
    """A walk over all kinds of pages, by an operator, nine days later: times are longest with the day before them."""
    found: dict[str, Sight] = {}
    with visiting(browser, address_of(product), OPERATOR) as visitor:
        visitor.page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=9))
        ahead, known = [PREFIX, *ALSO], {routes.kind(path) for path in (PREFIX, *ALSO)}
        while ahead and len(found) < PAGES_MAX:
            path = ahead.pop(0)
            sight = found[path] = look(visitor, path, routes, whole=routes.of(path) not in routes_of(found))
            for link in sight.links:
                if routes.kind(link) not in known:
                    known.add(routes.kind(link))
                    ahead.append(link)
    return found


def routes_of(sights: dict[str, Sight]) -> set[str]:
    return {sight.route for sight in sights.values()}


def look(visitor: Visitor, path: str, routes: Routes, *, whole: bool) -> Sight:
    """Open it at both widths. `whole`: the first page of its template is also looked at by axe-core, in both themes."""
    page = visitor.open(path)
    expect(page.locator("h1").first).to_be_attached()
    links = page.locator(f"a[href^='{PREFIX}']").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    sight = Sight(path, routes.of(path), page.title(), links)
    visitor.unfold()
    for width in (NARROW, WIDE):
        sight.beyond[width] = visitor.beyond(width)
        sight.broken += visitor.broken()
        sight.spilled += visitor.spilled()
        sight.cut_off += visitor.cut_off()
        visitor.take_picture(f"{path} {width}")
    if whole:
        sight.grave["light"] = visitor.grave_findings()
        page.emulate_media(color_scheme="dark")
        sight.grave["dark"] = visitor.grave_findings("color-contrast")
        visitor.take_picture(f"{path} dark {WIDE}")
        page.emulate_media(color_scheme="light")
    sight.faults += visitor.taken_faults()
    return sight


# --------------------------------------------------------------------------------------------------------------- facts


def test_every_page_is_reached_from_the_first_by_links_or_the_search(sights: dict[str, Sight], routes: Routes) -> None:
    assert routes.paths - routes_of(sights) == set()
    assert len(sights) < PAGES_MAX


def test_the_navigation_has_every_page_with_a_title(sights: dict[str, Sight]) -> None:
    assert {page.path for page in PAGES if page.title} <= set(sights)
    assert {page.path for page in PAGES if page.title} <= set(sights[PREFIX].links)


def test_every_page_has_a_title_of_its_own(sights: dict[str, Sight]) -> None:
    by_route = {sight.route: sight.title for sight in sights.values()}
    assert len(set(by_route.values())) == len(by_route)


def test_no_page_logs_an_error_breaks_the_policy_or_asks_for_what_fails(sights: dict[str, Sight]) -> None:
    assert {path: sight.faults for path, sight in sights.items() if sight.faults} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(sights: dict[str, Sight], theme: str) -> None:
    looked_at = [sight for sight in sights.values() if sight.grave]
    assert {sight.route for sight in looked_at} == routes_of(sights)
    assert {sight.path: sight.grave[theme] for sight in looked_at if sight.grave[theme]} == {}


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_scrolls_sideways(sights: dict[str, Sight], width: int) -> None:
    assert {path: sight.beyond[width] for path, sight in sights.items() if sight.beyond[width]} == {}


def test_no_time_and_no_name_is_broken_over_two_lines(sights: dict[str, Sight]) -> None:
    assert {path: sight.broken[:3] for path, sight in sights.items() if sight.broken} == {}


def test_nothing_reaches_out_of_its_part(sights: dict[str, Sight]) -> None:
    assert {path: sight.spilled[:3] for path, sight in sights.items() if sight.spilled} == {}


def test_no_form_that_is_unfolded_is_cut_off(sights: dict[str, Sight]) -> None:
    assert {path: sight.cut_off for path, sight in sights.items() if sight.cut_off} == {}


@pytest.mark.parametrize("path", sorted(page.path for page in PAGES if page.title))
def test_on_a_narrow_screen_the_page_that_one_is_on_is_in_view(vera: Visitor, path: str) -> None:
    vera.page.set_viewport_size({"width": NARROW, "height": 900})
    vera.open(path)
    expect(vera.page.locator("nav [aria-current=page]")).to_be_in_viewport(ratio=0.9)


def test_a_breach_of_the_policy_would_be_noticed(browser: Browser, product: Product) -> None:
    with visiting(browser, address_of(product), VIEWER) as visitor:
        visitor.open("/audit")
        with visitor.page.expect_console_message():
            visitor.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\">')")
        assert [fault for fault in visitor.taken_faults() if "Content Security Policy" in fault]


def test_a_grave_finding_would_be_noticed(browser: Browser, product: Product) -> None:
    with visiting(browser, address_of(product), VIEWER) as visitor:
        visitor.open("/audit").evaluate("document.querySelector('main').append(document.createElement('button'))")
        assert [finding for finding in visitor.grave_findings() if finding.startswith("button-name")]


def test_a_page_that_scrolls_sideways_would_be_noticed(browser: Browser, product: Product) -> None:
    with visiting(browser, address_of(product), VIEWER) as visitor:
        visitor.open("/audit").evaluate("document.querySelector('h1').style.width = '500px'")
        assert visitor.beyond(NARROW) > 0


def test_every_choice_that_a_filter_offers_is_answered(vera: Visitor) -> None:
    for path in sorted(page.path for page in PAGES if page.title):
        for choice in vera.open(path).locator("form[method=get] select").all():
            name, values = choice.get_attribute("name"), choice.locator("option").evaluate_all(_VALUES)
            assert len(set(values)) == len(values), (path, name)
            for value in values:
                answer = vera.page.request.get(f"{vera.address}{path}", params={str(name): value})
                assert answer.ok, answer.url


def test_a_viewer_is_offered_no_act_on_any_page(browser: Browser, product: Product, sights: dict[str, Sight]) -> None:
    with visiting(browser, address_of(product), VIEWER) as visitor:
        offered = {}
        for path in first_of_each_route(sights):
            acts = visitor.open(path).locator("main form[method=post], main details.act")
            offered[path] = acts.count()
    del offered[SIGN_IN]
    assert {path: count for path, count in offered.items() if count} == {}


def test_every_page_is_whole_without_javascript(browser: Browser, product: Product, sights: dict[str, Sight]) -> None:
    with visiting(browser, address_of(product), OPERATOR, java_script_enabled=False) as visitor:
        for path in first_of_each_route(sights):
            page = visitor.open(path)
            assert page.locator("h1").first.text_content(), path
            # Times that the script counts on have a value of their own, and nothing waits for it to be shown.
            counted = page.locator("main [data-since], main [data-until], main time").all_text_contents()
            assert all(counted), path
            hidden = page.locator("main [hidden]:not(button.copy)")
            assert hidden.count() == 0, path
            expect(page.locator("noscript")).to_be_visible()
        assert visitor.taken_faults() == []


def first_of_each_route(sights: dict[str, Sight]) -> list[str]:
    return list({sight.route: sight.path for sight in reversed(sights.values())}.values())


# ------------------------------------------------------------------------------------------------------ a large house


@pytest.fixture
def vera(browser: Browser, product: Product) -> Iterator[Visitor]:
    with visiting(browser, address_of(product), VIEWER) as visitor:
        yield visitor
        assert visitor.taken_faults() == []


def test_one_leafs_through_a_hundred_thousand_changes(vera: Visitor) -> None:
    vera.open("/changes")
    shown = []
    for _ in range(3):
        shown += vera.main.locator("tbody tr td:first-child").all_text_contents()
        vera.main.get_by_role("link", name="Older").click()
    newest = crowd.CHANGES + 1  # the emergency
    assert shown == [str(each) for each in range(newest, newest - 150, -1)]
    vera.main.get_by_role("link", name="Newest").click()
    expect(vera.main.locator("tbody tr td").first).to_have_text(str(newest))


def test_the_filters_find_a_unit_s_changes_and_keep_what_was_filled_in(vera: Visitor) -> None:
    vera.open("/changes")
    vera.page.get_by_label("Entity id").fill(crowd.UNIT)
    vera.page.get_by_label("Fate").select_option("DEAD")
    vera.page.get_by_role("button", name="Show").click()
    expect(vera.page.get_by_label("Entity id")).to_have_value(crowd.UNIT)
    expect(vera.page.get_by_label("Fate")).to_have_value("DEAD")
    expect(vera.main.locator("tbody tr td:first-child")).to_have_text([str(crowd.DEAD_ID)])


def test_the_search_goes_straight_to_what_a_key_names(vera: Visitor) -> None:
    vera.open("/changes")
    vera.page.get_by_role("searchbox", name="Search").fill("pms-2026-11-0000760")
    vera.page.keyboard.press("Enter")
    expect(vera.page).to_have_url(re.compile(f"/changes/{crowd.DEAD_ID}$"))
    expect(vera.main).to_contain_text("no such guest #")


def test_the_overview_says_that_oldhost_has_banned_us_and_counts_down(vera: Visitor) -> None:
    vera.open()
    expect(vera.main.locator(".banner strong").first).to_have_text("BANNED")
    expect(vera.page.locator(".chip")).to_contain_text("BANNED")
    left = vera.main.locator("[data-until]")
    before = left.text_content()
    expect(left).not_to_have_text(before or "")


def test_in_a_ban_that_is_no_pause_one_may_pause_but_not_resume(browser: Browser, product: Product) -> None:
    with visiting(browser, address_of(product), OPERATOR) as visitor:
        visitor.open()
        expect(visitor.main.locator("summary", has_text="Pause")).to_be_visible()
        expect(visitor.main.locator("summary", has_text="Resume")).to_be_hidden()


def test_letters_of_a_reason_are_shown_fifty_at_a_time(vera: Visitor) -> None:
    vera.open("/dead-letters")
    vera.main.get_by_role("link", name=crowd.REASON).click()
    expect(vera.main.locator("tbody tr")).to_have_count(LETTERS_AT_ONCE_MAX)
    vera.main.get_by_role("link", name="More").click()
    expect(vera.main.locator("tbody tr")).to_have_count(crowd.OF_THE_REASON - LETTERS_AT_ONCE_MAX)


def test_a_plan_begins_with_what_waits_now(vera: Visitor) -> None:
    vera.open("/plan")
    vera.page.get_by_label("Time over which changes arrive").fill("60")
    vera.page.get_by_role("button", name="Plan").click()
    expect(vera.main.get_by_role("heading", name="What would happen")).to_be_visible()
    expect(vera.page.get_by_label("what is outstanding and scheduled now")).to_be_checked()
    expect(vera.page.get_by_label("Time over which changes arrive")).to_have_value("60")
    vera.take_picture("plan from now")
