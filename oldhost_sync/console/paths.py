"""Where the console's parts are, for whoever links to them."""

from __future__ import annotations

PREFIX = "/console"
SIGN_IN = f"{PREFIX}/sign-in"
ASSETS = f"{PREFIX}/static"
LINK = f"{PREFIX}/link"
