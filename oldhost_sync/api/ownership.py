"""Whose a change is: the token's that made it, by the token's name, so a renewed token keeps what it made.

Operators and viewers see every change. An application sees its own, and those that no token made (by `record_change`,
a signal, the command line): who made them has nothing but their key to ask by. Another token's change answers as one
that there is not. An application cancels only its own.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from oldhost_sync.api.auth import Caller, caller_of
from oldhost_sync.policy.limits import SOURCE_LENGTH_MAX
from oldhost_sync.settings import Role

_TOKENS_SOURCE = "api:"
# Enough that no two names have the same.
_NAME_DIGEST_LENGTH = 16


def source_of(request: Request) -> str:
    """The source of a change that the caller makes, for the outbox."""
    return source_of_token(caller_of(request).name)


def source_of_token(name: str) -> str:
    """What the outbox knows the token by: its name; a name that is too long for it ends in a digest of the whole."""
    source = f"{_TOKENS_SOURCE}{name}"
    if len(source) <= SOURCE_LENGTH_MAX:
        return source
    digest = hashlib.sha256(name.encode()).hexdigest()[:_NAME_DIGEST_LENGTH]
    return f"{source[: SOURCE_LENGTH_MAX - _NAME_DIGEST_LENGTH - 1]}~{digest}"  # no name has a "~"


def may_see(caller: Caller, source: str) -> bool:
    """Whether `caller` may know of a change of this source."""
    return owns(caller, source) or not source.startswith(_TOKENS_SOURCE) or caller.role is not Role.APP


def owns(caller: Caller, source: str) -> bool:
    """Whether it is the caller's own."""
    return source == source_of_token(caller.name)
