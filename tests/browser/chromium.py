"""Chromium as Debian installs it, driven by Playwright. Nothing is downloaded, and nothing is asked of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from oldhost_sync.stack.machine import need_program

INSTALL = "`make chromium` installs it (Debian's package `chromium-headless-shell`, or `chromium`)"
# Root in a container has no sandbox to give, and /dev/shm is often small there. A process for each page costs CPU.
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--renderer-process-limit=1")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. ProgramMissing says what to install: these tests fail without it, they don't skip."""
    program = need_program("chromium-headless-shell", "chromium", "chromium-browser", install=INSTALL)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()
