"""The console, put together and added to the API's application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.responses import Response

from oldhost_sync.api.access import Door
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.routes.hosts import HOSTS
from oldhost_sync.console.administration_pages import AuditPage, HostsPage, RulesPage
from oldhost_sync.console.alerts_page import AlertsPage
from oldhost_sync.console.api_page import ApiPage
from oldhost_sync.console.change_pages import ChangePage, ChangesPage
from oldhost_sync.console.codec_page import CodecPage
from oldhost_sync.console.dead_letters_page import DeadLettersPage
from oldhost_sync.console.door import ConsoleDoor
from oldhost_sync.console.layout import SECURITY_HEADERS, Entry, Layout
from oldhost_sync.console.live_stream import LiveStream
from oldhost_sync.console.overview_parts import OverviewParts
from oldhost_sync.console.page import Adder, Console, Page
from oldhost_sync.console.paths import ASSETS, PREFIX
from oldhost_sync.console.plan_page import PlanPage
from oldhost_sync.console.sign_in_page import SignInPage
from oldhost_sync.console.sign_ins import SignIns
from oldhost_sync.console.unit_pages import EntityPage, UnitsPage
from oldhost_sync.console.writer_pages import HaltPage, LivePage, OverviewPage, SessionsPage
from oldhost_sync.credentials import EncryptionKey
from workflows.messages import workflow_id

# In the order of the navigation.
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


# A year, in effect for ever: the address changes with the content.
_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`origin`: the address that browsers see, if there is a proxy. `session_seconds`: how long a sign-in lasts;
    `idle_seconds`: without a use.
    `home`: the host whose console is at /console, and under whose name people sign in; without one: this host.
    `temporal_ui`: the namespace in Temporal's UI, if there is one to link to. `webhook`: whether alerts are posted to
    one. `temporal_keys`: decrypt what Temporal stores, for its UI.
    """

    origin: str | None = None
    session_seconds: float = 43_200.0
    temporal_ui: str | None = None
    webhook: bool = False
    temporal_keys: Sequence[EncryptionKey] = ()
    home: str | None = None
    idle_seconds: float = 7_200.0


def mount_console(app: FastAPI, dependencies: Dependencies, options: ConsoleOptions | None = None) -> Door:
    """Add all pages to `app`; returns the door that guards them."""
    options = options or ConsoleOptions()
    writer_in_temporal = (
        f"{options.temporal_ui.rstrip('/')}/workflows/{workflow_id(dependencies.host)}" if options.temporal_ui else ""
    )
    home = options.home or dependencies.host
    layout = Layout(
        dependencies.host,
        secure=(options.origin or "").startswith("https:"),
        writer_in_temporal=writer_in_temporal,
        base=PREFIX if dependencies.host == home else f"{PREFIX}/{HOSTS}/{dependencies.host}",
    )
    sign_ins = SignIns(
        home,
        dependencies.tokens,
        dependencies.database,
        options.session_seconds,
        idle_seconds=options.idle_seconds,
        clock=dependencies.clock,
    )
    overview = OverviewParts(dependencies, layout)
    stream = LiveStream(overview.live)
    console = Console(
        dependencies, layout, sign_ins, overview, stream, webhook=options.webhook, temporal_keys=options.temporal_keys
    )
    pages = [page(console) for page in PAGES]
    layout.navigation = [Entry(page.path, page.title) for page in pages if page.title]
    add = Adder(app)
    for page in pages:
        page.mount(add)
    _mount_assets(add, layout)
    add("GET", "/", partial(_to_console, layout))
    return ConsoleDoor(layout, sign_ins, stream, options.origin, _origin(options.temporal_ui))


async def _to_console(layout: Layout) -> Response:
    return layout.redirect(PREFIX)


def _origin(address: str | None) -> str | None:
    """The origin of `address`, as browsers send it."""
    parts = urlsplit(address or "")
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None


def _mount_assets(add: Adder, layout: Layout) -> None:
    known = {asset.address: asset for asset in layout.assets.values()}

    async def serve(digest: str, name: str) -> Response:
        asset = known.get(f"{ASSETS}/{digest}/{name}")
        if asset is None:
            return Response(status_code=404, headers=SECURITY_HEADERS)
        headers = SECURITY_HEADERS | {"Cache-Control": _KEPT}
        return Response(asset.content, headers=headers, media_type=asset.media_type)

    add("GET", ASSETS + "/{digest}/{name}", serve)
