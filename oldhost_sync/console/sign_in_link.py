"""A link that signs its finder in to the console, once: for the person who has started the product."""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy.engine import Connection

from oldhost_sync.settings import ApiToken
from oldhost_sync.store import access
from oldhost_sync.store.access import TokenHolder

SECRET_BYTES = 32
# Long enough to read the terminal and click; short enough that a link in a log is useless.
LINK_SECONDS = 600.0


def digest_of(secret: str) -> bytes:
    """What the database stores of a secret. It is random, so a plain SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).digest()


def offer_link(connection: Connection, host: str, token: ApiToken) -> str:
    """Store a link that signs the token's owner in once, within LINK_SECONDS; returns its secret."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    holder = TokenHolder(token.name, token.fingerprint, LINK_SECONDS)
    access.offer_link(connection, host, digest_of(secret), holder)
    return secret
