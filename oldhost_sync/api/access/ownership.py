"""Who owns a change: the token that made it, identified by its name, so that a renewed token still owns its changes.

Operators and viewers see every change. An application sees its own changes, and those that no token made (by
`record_change`, a signal, the command line), because their idempotency key is the only way to ask for them. Another
token's change is answered as if it did not exist. An application can only cancel its own changes.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from oldhost_sync.api.access.auth import Caller, caller_of
from oldhost_sync.policy.limits import SOURCE_LENGTH_MAX
from oldhost_sync.settings import Role

_TOKENS_SOURCE = "api:"
# Long enough that no two names share a digest.
_NAME_DIGEST_LENGTH = 16


def source_of(request: Request) -> str:
    """The outbox's `source` for a change that the caller makes."""
    return source_of_token(caller_of(request).name)


def source_of_token(name: str) -> str:
    """The outbox's `source` for a token: its name. A name that is too long is cut and ends in a digest of the whole."""
    source = f"{_TOKENS_SOURCE}{name}"
    if len(source) <= SOURCE_LENGTH_MAX:
        return source
    digest = hashlib.sha256(name.encode()).hexdigest()[:_NAME_DIGEST_LENGTH]
    return f"{source[: SOURCE_LENGTH_MAX - _NAME_DIGEST_LENGTH - 1]}~{digest}"  # a token's name can't contain "~"


def may_see(caller: Caller, source: str) -> bool:
    """Whether `caller` may see a change with this source."""
    return owns(caller, source) or not source.startswith(_TOKENS_SOURCE) or caller.role is not Role.APP


def owns(caller: Caller, source: str) -> bool:
    """Whether the caller's token made the change."""
    return source == source_of_token(caller.name)
