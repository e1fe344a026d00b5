"""Access to the console: the cookie of a sign-in and, for every request that changes something, our own origin.

SameSite=Strict keeps the cookie out of requests that other sites make a browser send. The check of `Origin` does not
depend on how the browser treats cookies, and also covers the sign-in, where there is no cookie yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import Caller
from oldhost_sync.api.problems import Problem
from oldhost_sync.console.layout import Layout
from oldhost_sync.console.live_stream import LiveStream
from oldhost_sync.console.paths import ASSETS, LINK, PREFIX, SIGN_IN
from oldhost_sync.console.sign_ins import SignIn, SignIns

SIGN_IN_KEY = "oldhost_sync.session"
THEME = f"{PREFIX}/theme"
STREAM = f"{PREFIX}/stream"
_PUBLIC = {SIGN_IN, LINK, THEME}
# For Temporal's UI; its own setting is this address without `/decode`.
DECODE = f"{PREFIX}/codec/decode"
_CHANGES_NOTHING = {"GET", "HEAD"}


class ConsoleDoor:
    """Admits signed-in callers; redirects everyone else to the sign-in. `origin`: ours, if it is set.

    `temporal_ui`: the origin of Temporal's UI; pages from there may have payloads decoded, and nothing else.
    """

    prefix = PREFIX

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Behind TLS: browsers use no plain HTTP for this name, for a year."""
        return [(b"strict-transport-security", b"max-age=31536000")] if self._layout.secure else []

    def __init__(
        self,
        layout: Layout,
        sign_ins: SignIns,
        stream: LiveStream,
        origin: str | None,
        temporal_ui: str | None = None,
    ) -> None:
        self._layout = layout
        self._sign_ins = sign_ins
        self._stream = stream
        self._origin = origin
        self._temporal_ui = temporal_ui

    async def admit(self, request: Request) -> Caller | Response | None:
        if request.scope["path"] == DECODE:
            return await self._admit_decoder(request)
        if request.method not in _CHANGES_NOTHING and not self._comes_from_here(request):
            raise foreign_origin()
        path = request.scope["path"]
        if path in _PUBLIC or path.startswith(f"{ASSETS}/"):
            return None
        sign_in = await self.sign_in_of(request, is_use=path != STREAM)
        if sign_in is None:
            return self._to_sign_in(request)
        request.scope[SIGN_IN_KEY] = sign_in
        return sign_in.caller

    async def _admit_decoder(self, request: Request) -> Caller | Response:
        """Only pages of Temporal's UI are answered, so nobody is while its address is not set."""
        if self._temporal_ui is None or request.headers.get("origin") != self._temporal_ui:
            raise foreign_origin()
        headers = decoder_headers(request)
        if request.method == "OPTIONS":  # the browser's preflight request, without a cookie
            return Response(status_code=204, headers=headers)
        sign_in = await self.sign_in_of(request)
        return Response("Sign in to the console first.", 401, headers) if sign_in is None else sign_in.caller

    async def sign_in_of(self, request: Request, *, is_use: bool = True) -> SignIn | None:
        """The sign-in of the request's cookie. Raises Problem or StoreError when the database can't be read."""
        secret = request.cookies.get(self._layout.session_cookie)
        return None if not secret else await self._sign_ins.find(secret, is_use=is_use)

    def as_response(self, request: Request, problem: Problem) -> Response:
        return self._layout.problem(request, problem)

    async def close(self) -> None:
        await self._stream.close()

    def _comes_from_here(self, request: Request) -> bool:
        own = self._origin or f"{request.url.scheme}://{request.headers.get('host', '')}"
        return request.headers.get("origin") == own

    def _to_sign_in(self, request: Request) -> Response:
        wanted = request.scope["path"]
        asks_page = request.method == "GET" and wanted != PREFIX
        return self._layout.redirect(f"{SIGN_IN}?next={quote(wanted)}" if asks_page else SIGN_IN)


def decoder_headers(request: Request) -> dict[str, str]:
    """Let the requesting origin send the cookie and read the answer; the door has checked the origin."""
    return {
        "Access-Control-Allow-Origin": request.headers.get("origin", ""),
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "content-type, x-namespace, caller-type",
        "Vary": "Origin",
    }


def foreign_origin() -> Problem:
    return Problem(
        403,
        "foreign-origin",
        "This did not come from the console",
        "The request names no origin, or another one than this console's, so nothing was done.",
        "Use the console's own pages. Behind a proxy with TLS, SYNC_CONSOLE_ORIGIN must be the address in use.",
    )
