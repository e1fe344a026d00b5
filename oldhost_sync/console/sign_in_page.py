"""Signing in with a token or with a link that works once, signing out, and the choice of light or dark.

Failures are not counted: tokens can't be guessed, requests without a valid token are throttled
(`api/quotas.py`), and a limit on failures would let anyone lock the operators out.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import WATCHERS, Caller
from oldhost_sync.console.door import SIGN_IN_KEY, THEME
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.layout import THEME_COOKIE, THEMES
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import LINK, PREFIX, SIGN_IN
from oldhost_sync.console.sign_ins import SECRET_LENGTH_MAX

THEME_SECONDS = 365 * 86_400.0
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}

Next = Annotated[str, Query(max_length=512)]
Secret = Annotated[str, Query(min_length=1, max_length=SECRET_LENGTH_MAX)]


class SignInPage(Page):
    def mount(self, add: Adder) -> None:
        add("GET", SIGN_IN, self.show)
        add("POST", SIGN_IN, self.sign_in)
        add("GET", LINK, self.use_link)
        add("POST", f"{PREFIX}/sign-out", self.sign_out, WATCHERS)
        add("POST", THEME, self.choose_theme)

    async def show(self, request: Request, next: Next = PREFIX) -> Response:  # noqa: A002 - the query's word
        return self.page(request, "sign_in.html", title="Sign in", next=_own(next), refused="")

    async def sign_in(self, request: Request) -> Response:
        fields = await read_fields(request, "token", "next")
        caller = self.console.sign_ins.owner_of(fields.get("token", ""))
        address = _own(fields.get("next", PREFIX))
        if caller is None:
            self._note_failure(request, "no token for the console")
            refused = (
                "This is not a token of a viewer or an operator of this host; an application's token can't sign in."
            )
            return self.page(request, "sign_in.html", title="Sign in", status=403, next=address, refused=refused)
        return await self._signed_in(caller, address)

    async def use_link(self, request: Request, secret: Secret) -> Response:
        """For development on this machine only: the link works once, within minutes, and only from this machine."""
        caller = await self.console.sign_ins.use_link(secret) if _is_local(request) else None
        if caller is None:
            self._note_failure(request, "no valid link to the console")
            refused = (
                "This link was used already, is too old, or was opened from another machine. Sign in with a token."
            )
            return self.page(request, "sign_in.html", title="Sign in", status=403, next=PREFIX, refused=refused)
        return await self._signed_in(caller, PREFIX)

    async def sign_out(self, request: Request) -> Response:
        await self.console.sign_ins.end(request.scope[SIGN_IN_KEY])
        response = self.console.layout.redirect(SIGN_IN, "You are signed out.")
        self.console.layout.set_cookie(response, self.console.layout.session_cookie, "", 0)
        return response

    async def choose_theme(self, request: Request) -> Response:
        fields = await read_fields(request, "theme", "next")
        theme = fields.get("theme", "")
        response = self.console.layout.redirect(_own(fields.get("next", PREFIX)))
        if theme in THEMES:
            self.console.layout.set_cookie(response, THEME_COOKIE, theme, THEME_SECONDS)
        return response

    async def _signed_in(self, caller: Caller, address: str) -> Response:
        secret = await self.console.sign_ins.open(caller)
        layout = self.console.layout
        response = layout.redirect(address)
        layout.set_cookie(response, layout.session_cookie, secret, self.console.sign_ins.seconds)
        return response

    def _note_failure(self, request: Request, why: str) -> None:
        self.console.dependencies.refused.note(request.client.host if request.client else "nowhere", why)


def _own(address: str) -> str:
    """`address` if it is a page of the console; otherwise the first page."""
    is_page = address == PREFIX or address.startswith(f"{PREFIX}/")
    return address if is_page and address.isascii() and address.isprintable() and "\\" not in address else PREFIX


def _is_local(request: Request) -> bool:
    """Whether the request comes from this machine and uses its own name; another name may be a DNS rebinding attack."""
    try:
        from_here = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
    return from_here and request.url.hostname in _LOOPBACK_NAMES
