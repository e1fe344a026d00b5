"""All pages of the console, in the order of the navigation."""

from __future__ import annotations

from oldhost_sync.console.alerts_page import AlertsPage
from oldhost_sync.console.api_page import ApiPage
from oldhost_sync.console.audit_page import AuditPage
from oldhost_sync.console.change_page import ChangePage
from oldhost_sync.console.changes_page import ChangesPage
from oldhost_sync.console.codec_page import CodecPage
from oldhost_sync.console.dead_letters_page import DeadLettersPage
from oldhost_sync.console.entity_page import EntityPage
from oldhost_sync.console.halt_page import HaltPage
from oldhost_sync.console.hosts_page import HostsPage
from oldhost_sync.console.live_page import LivePage
from oldhost_sync.console.overview_page import OverviewPage
from oldhost_sync.console.page import Page
from oldhost_sync.console.plan_page import PlanPage
from oldhost_sync.console.rules_page import RulesPage
from oldhost_sync.console.sessions_page import SessionsPage
from oldhost_sync.console.sign_in_page import SignInPage
from oldhost_sync.console.units_page import UnitsPage

PAGES: tuple[type[Page], ...] = (
    OverviewPage,
    LivePage,
    ChangesPage,
    ChangePage,
    EntityPage,
    UnitsPage,
    DeadLettersPage,
    AlertsPage,
    HaltPage,
    SessionsPage,
    PlanPage,
    RulesPage,
    AuditPage,
    HostsPage,
    ApiPage,
    SignInPage,
    CodecPage,
)
