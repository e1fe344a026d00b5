"""Renders pages from templates, each in the same frame, with headers that keep out foreign code and frames; and the
files that pages need.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from oldhost_sync.api.access import CALLER_KEY
from oldhost_sync.api.app import version
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.routes.hosts import host_in
from oldhost_sync.console.paths import ASSETS, PREFIX
from oldhost_sync.console.words import FILTERS
from oldhost_sync.policy.plain_text import plain
from oldhost_sync.settings import Role

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Asset:
    """A style, script or icon of the package; `address` contains a digest, so browsers may cache it for ever."""

    address: str
    media_type: str
    content: bytes


def read_assets(prefix: str) -> dict[str, Asset]:
    """All files of `static` by name; their addresses begin with `prefix`."""
    assets: dict[str, Asset] = {}
    for file in resources.files("oldhost_sync.console").joinpath("static").iterdir():
        suffix = f".{file.name.rpartition('.')[2]}"
        if suffix in MEDIA_TYPES:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH]
            assets[file.name] = Asset(f"{prefix}/{digest}/{file.name}", MEDIA_TYPES[suffix], content)
    return assets


logger = logging.getLogger(__name__)

SESSION_COOKIE, HOST_PREFIX = "oldhost_sync_session", "__Host-"
THEME_COOKIE, NOTICE_COOKIE = "oldhost_sync_theme", "oldhost_sync_notice"
THEMES = ("auto", "light", "dark")
# The answer to an act is shown once, on the next page.
NOTICE_SECONDS, NOTICE_LENGTH_MAX = 60, 1_000

# Only what this server sends itself: no inline code, no inline style, no frame, no foreign address.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # Not "no-referrer": browsers would then send no origin with the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the navigation."""

    path: str
    title: str


@dataclass(eq=False)
class Layout:
    """Renders templates. `navigation` is set once, when all pages are known. `secure`: cookies are sent over TLS only.
    `base`: the console's address if another host's console is at PREFIX; templates and pages still write PREFIX.
    `writer_in_temporal`: the writer's address in Temporal's UI, empty if there is none.
    """

    host: str
    secure: bool = False
    writer_in_temporal: str = ""
    base: str = PREFIX
    navigation: Sequence[Entry] = ()
    assets: Mapping[str, Asset] = field(default_factory=lambda: read_assets(ASSETS))

    @property
    def session_cookie(self) -> str:
        """Behind TLS with the prefix by which browsers refuse a cookie that another site, or plain HTTP, has set."""
        return f"{HOST_PREFIX if self.secure else ''}{SESSION_COOKIE}"

    def __post_init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("oldhost_sync.console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_plain,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(
            host=self.host,
            writer_in_temporal=self.writer_in_temporal,
            version=version(),
            prefix=PREFIX,
            asset=lambda name: self.assets[name].address,
            now=lambda: datetime.now(UTC),
        )

    def page(self, request: Request, template: str, title: str, *, status: int = 200, **values: Any) -> Response:
        """A whole page: `templates/{template}` within the frame, which shows who is signed in."""
        caller = request.scope.get(CALLER_KEY)
        theme = request.cookies.get(THEME_COOKIE, "auto")
        frame = {
            "title": title,
            "path": request.scope["path"],
            "caller": caller,
            "may_act": caller is not None and caller.role is Role.OPS,
            "navigation": self.navigation if caller is not None else (),
            "theme": theme if theme in THEMES else "auto",
            "notice": _read_notice(request.cookies.get(NOTICE_COOKIE)),
        }
        response = HTMLResponse(self._render(template, **frame, **values), status, SECURITY_HEADERS)
        if NOTICE_COOKIE in request.cookies:
            response.delete_cookie(NOTICE_COOKIE, path=PREFIX)
        return response

    def part(self, name: str, **values: Any) -> Markup:
        """`templates/parts/{name}.html` by itself, for the live stream. If one fails, the others are still shown."""
        try:
            return Markup(self._render(f"parts/{name}.html", **values))  # noqa: S704 - the template has escaped it
        except Exception:
            logger.exception("the part %s of a page can't be shown", name)
            return Markup(self._render("parts/failed.html", name=name))  # noqa: S704

    def _render(self, template: str, **values: Any) -> str:
        page = self._templates.get_template(template).render(**values)
        return page if self.base == PREFIX else page.replace(f'="{PREFIX}', f'="{self.base}')

    def problem(self, request: Request, problem: Problem) -> Response:
        """An error as a page: what is wrong, and what to do."""
        content = {name: problem.content[name] for name in ("detail", "action")}
        page = self.page(request, "problem.html", str(problem), status=problem.status, **content)
        page.headers.update({name: value for name, value in problem.headers.items() if name != "WWW-Authenticate"})
        return page

    def redirect(self, address: str, notice: str = "") -> Response:
        """Redirect to the page at `address`, which shows `notice` once."""
        response = RedirectResponse(self._address(address), 303, SECURITY_HEADERS)
        if notice:
            self.set_cookie(response, NOTICE_COOKIE, _notice(notice), NOTICE_SECONDS)
        return response

    def _address(self, address: str) -> str:
        """`address` in this host's console; one that names a host is left unchanged."""
        return address if host_in(address) is not None else self.base + address.removeprefix(PREFIX)

    def set_cookie(self, response: Response, name: str, value: str, seconds: float) -> None:
        response.set_cookie(
            name,
            value,
            max_age=int(seconds),
            path="/" if name.startswith(HOST_PREFIX) else PREFIX,
            secure=self.secure,
            httponly=True,
            samesite="strict",
        )


def _plain(value: Any) -> Any:
    """What a template shows; its own markup stays as it is."""
    return plain(value, lines=True) if type(value) is str else value


def _notice(text: str) -> str:
    return base64.urlsafe_b64encode(text[:NOTICE_LENGTH_MAX].encode()).decode()


def _read_notice(cookie: str | None) -> str:
    try:
        return base64.urlsafe_b64decode(cookie or "").decode()[:NOTICE_LENGTH_MAX]
    except (binascii.Error, ValueError):
        return ""
