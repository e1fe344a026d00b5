"""Where the console's parts are, for whoever links to them."""

from __future__ import annotations

PREFIX = "/console"
# The API's page, for those who write an application and have no token yet.
DOCS = "/docs"
SIGN_IN = f"{PREFIX}/sign-in"
ASSETS = f"{PREFIX}/static"
LINK = f"{PREFIX}/link"
