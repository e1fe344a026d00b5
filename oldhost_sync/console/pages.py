"""All pages of the console, in the order of the navigation."""

from __future__ import annotations

from oldhost_sync.console.live_page import LivePage
from oldhost_sync.console.overview_page import OverviewPage
from oldhost_sync.console.page import Page
from oldhost_sync.console.sign_in_page import SignInPage

PAGES: tuple[type[Page], ...] = (OverviewPage, LivePage, SignInPage)
