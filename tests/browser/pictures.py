"""`python -m tests.browser.pictures docs` makes the documents' pictures of the console: light, dark, and on a phone."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, expect

from oldhost_sync.console.paths import PREFIX
from oldhost_sync.planner import Scenario, arrivals
from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.browser import crowd
from tests.browser.chromium import chromium
from tests.browser.stage import OPERATOR, address_of, staged, state_of
from tests.browser.visitor import visiting
from tests.conformance.private_mariadb import private_mariadb
from tests.faults.product import Product

# A repository keeps each of them for ever.
BYTES_MAX = 150_000
WIDE, PHONE = {"width": 1200, "height": 840}, {"width": 400, "height": 900}
CHANGES, LATENCY_MS, BAN_SECONDS = 500, 400, 900.0
SETTINGS = {"host": "oldhost", "debounce_seconds": 20, "max_wait_seconds": 60, "ban_seconds": BAN_SECONDS}


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as of_product,
        private_mariadb() as mariadb,
        EmbeddedTemporal(None) as temporal,
        mariadb.migrated_database() as urls,
        staged(Path(of_product), urls, temporal.address, **SETTINGS) as product,
        chromium() as browser,
    ):
        be_busy(product)
        take(browser, product, folder / "console.png", "SENDING", "light", WIDE)
        be_banned(product)
        take(browser, product, folder / "console-dark.png", "BANNED", "dark", WIDE)
        take(browser, product, folder / "console-phone.png", "BANNED", "light", PHONE)


def be_busy(product: Product) -> None:
    """A peak at OldHost's usual pace, until there are rates."""
    product.admin("POST", "/actions/latency", {"latency_ms": LATENCY_MS})
    product.start_api()
    peak = [
        {
            "entity_type": each.entity_type,
            "entity_id": each.entity_id,
            "event_type": each.event_type,
            "payload": {"step": each.step},
            "idempotency_key": f"peak-{each.number}",
        }
        for each in arrivals(Scenario(changes=CHANGES, units=400, bursts=0))
    ]
    product.api.timeout_seconds = 60
    status, _ = product.api.call("POST", "/api/changes/batch", {"changes": peak})
    assert status == 202, status
    crowd.fill_charts(product, outstanding=CHANGES)
    product.start("relay")
    product.start_worker()
    product.start_writer()
    product.wait_for("the rates", lambda: product.status()["rates"]["applied_per_s"] > 0, 120)


def be_banned(product: Product) -> None:
    product.admin("POST", "/actions/ban", {"seconds": BAN_SECONDS})
    product.wait_for("the ban", lambda: state_of(product) == "BANNED", 60)
    product.api.change("A-118", "guest_locked_out", {"door": "is shut"})
    product.wait_for("the alerts", lambda: {"ban", "emergency-blocked"} <= set(product.open_alerts()), 60)


def take(browser: Browser, product: Product, file: Path, word: str, theme: str, size: dict[str, int]) -> None:
    """The upper part of the overview, when it is live."""
    with visiting(browser, address_of(product), OPERATOR, color_scheme=theme) as visitor:
        visitor.page.set_viewport_size({"width": size["width"], "height": size["height"]})
        visitor.open(PREFIX)
        expect(visitor.page.locator("#live")).to_have_text("Live")
        banner = visitor.page.locator(".banner strong").first
        expect(banner).to_have_text(word)
        visitor.page.screenshot(path=file)
        # A machine that is too busy for the writer to answer makes another picture: try again when it is not.
        assert banner.text_content() == word
    assert file.stat().st_size < BYTES_MAX, f"{file}: {file.stat().st_size} bytes"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
