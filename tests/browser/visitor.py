"""Somebody at the console: a page in a browser, what went wrong in it, and what axe-core says about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Response, expect

from oldhost_sync.console.paths import PREFIX, SIGN_IN

# The machines are shared.
SECONDS_MAX = 30.0
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
GRAVE = {"serious", "critical"}
# Where pictures of the pages are kept, for who wants to look at them; nowhere if it is not set.
PICTURES = os.environ.get("BROWSER_PICTURES")
# The rows of a table are alike, and so are articles and the API's routes: the first ones are looked at.
_AXE_FINDS = (
    "rules => axe.run({exclude: [['tbody tr:nth-child(n+9)'], ['article:nth-of-type(n+9)'], "
    "['details.route:nth-of-type(n+4)']]}, "
    "{resultTypes: ['violations'], ...(rules.length ? {runOnly: rules} : {})})"
)
_BROKEN = (
    "() => [...document.querySelectorAll('main time, main td > a, main th > a')]"
    ".filter(each => each.getClientRects().length > 1).map(each => each.textContent)"
)
_UNFOLD = "() => [...document.querySelectorAll('main details')].slice(0, 4).forEach(each => { each.open = true })"
_CUT_OFF = (
    "() => [...document.querySelectorAll('details[open] > form')].map(each => [each, each.getBoundingClientRect()])"
    ".filter(([_, box]) => box.left < 0 || box.right > innerWidth).map(([each]) => each.innerText)"
)
_SPILLED = (
    "() => [...document.querySelectorAll('.part, .card, .chart, .figures > div')].flatMap(box => "
    "[...box.querySelectorAll('*:not(svg *)')].filter(each => !each.closest('.scroll, form, .plot') && "
    "each.getBoundingClientRect().right > box.getBoundingClientRect().right + 1))"
    ".map(each => each.outerHTML.slice(0, 120))"
)
_BEYOND = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class Visitor:
    """`faults`: errors in the console (breaches of the policy too), exceptions, failed requests. `posted`: acts."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)
    posted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(SECONDS_MAX * 1000)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("request", self._ask)
        self.page.on("requestfailed", self._miss)
        self.page.on("response", self._receive)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text}")

    def _miss(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a page that is left ends its stream, and whatever it still loads
            self.faults.append(f"failed: {request.url} {request.failure}")

    def _ask(self, request: Request) -> None:
        if request.method == "POST":
            self.posted.add(urlsplit(request.url).path)

    def _receive(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")

    def taken_faults(self) -> list[str]:
        """What went wrong so far; it is not told again."""
        taken, self.faults = self.faults, []
        return taken

    # ------------------------------------------------------------------------------------------------------- looking

    def open(self, path: str = "") -> Page:
        """The page at `path`, a path below the console's or a whole one."""
        self.page.goto(self.address + (path if path.startswith(PREFIX) else PREFIX + path))
        return self.page

    @property
    def main(self) -> Locator:
        return self.page.locator("main")

    @property
    def notice(self) -> Locator:
        """What the last act answered."""
        return self.page.locator(".notice")

    def grave_findings(self, *rules: str) -> list[str]:
        """What axe-core finds serious or critical on the page: by `rules`, or by all of its own."""
        self.page.evaluate(AXE)
        found: dict[str, Any] = self.page.evaluate(_AXE_FINDS, list(rules))
        return [
            f"{each['id']}: {node['html'][:160]} {node['failureSummary'].splitlines()[1:]}"
            for each in found["violations"]
            if each["impact"] in GRAVE
            for node in each["nodes"]
        ]

    def beyond(self, width: int) -> int:
        """By how many pixels the page is wider than a window of `width`."""
        self.page.set_viewport_size({"width": width, "height": 900})
        wide: int = self.page.evaluate(_BEYOND)
        return wide

    def unfold(self) -> None:
        """Open the first forms and details that are folded; of the forms of acts one stays open."""
        self.page.evaluate(_UNFOLD)

    def broken(self) -> list[str]:
        """Times and names that stand on more than one line."""
        words: list[str] = self.page.evaluate(_BROKEN)
        return words

    def spilled(self) -> list[str]:
        """What reaches out of its part, over what stands beside it."""
        elements: list[str] = self.page.evaluate(_SPILLED)
        return elements

    def cut_off(self) -> list[str]:
        """Forms of which a part lies outside of the window."""
        forms: list[str] = self.page.evaluate(_CUT_OFF)
        return forms

    def take_picture(self, name: str) -> None:
        """The whole page as it is, if somebody wants pictures."""
        if PICTURES:
            file = re.sub(r"[^\w-]+", "-", name).strip("-")
            self.page.screenshot(path=Path(PICTURES) / f"{file}.png", full_page=True)

    # -------------------------------------------------------------------------------------------------------- acting

    def act(self, label: str, reason: str, **fields: str) -> None:
        """Open the form of the act `label`, fill it in, and send it."""
        form = self.form_of(label)
        form.locator("summary").click()
        for name, value in fields.items():
            form.locator(f"[name={name}]").fill(value)
        form.locator("[name=reason]").fill(reason)
        form.locator("form button").click()

    def form_of(self, label: str) -> Locator:
        summary = self.page.locator("summary", has_text=re.compile(f"^{re.escape(label)}$"))
        return self.page.locator("details.act").filter(has=summary)


@contextmanager
def visiting(browser: Browser, address: str, token: str = "", **context: Any) -> Iterator[Visitor]:
    """A visitor with cookies of their own, who is signed in by `token` if there is one."""
    expect.set_options(timeout=SECONDS_MAX * 1000)
    window = browser.new_context(viewport={"width": 1400, "height": 900}, **context)
    try:
        if token:
            answer = window.request.post(address + SIGN_IN, form={"token": token}, headers={"Origin": address})
            assert answer.ok, answer.status
        yield Visitor(window.new_page(), address)
    finally:
        window.close()
