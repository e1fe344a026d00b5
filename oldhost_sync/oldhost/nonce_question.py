"""The question that follows a complete answer which leaves its nonce open, on the same connection.

OldHost answers strictly in order, so what it then expects is its count after that answer. Two answers leave it open:

- An empty 200, 201 or 204 says yes and names no nonce. With a count that has moved on by just ours, that is an apply
  (I14): the two are about the same request. Without it, nothing is proven, and the next session decides.
- A rejection without an expected nonce uses it by the protocol. Not every host does: where the count has not moved,
  the nonce is free, and what follows would otherwise be a gap, and then look like a host that went back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from oldhost_sync.oldhost.errors import HostError
from oldhost_sync.oldhost.expected_nonce import Told
from oldhost_sync.oldhost.response import Response
from oldhost_sync.oldhost.wire import Answer, Applied, Expected, Rejected, Unlisted

# Not 202, which says that it is not done yet.
DONE = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})


def answered_with_count(answer: Answer, response: Response, nonce: int, ask: Callable[[], Told]) -> Answer:
    """The answer to the operation with `nonce`, and what OldHost's count adds to it, if it leaves that open."""
    empty = isinstance(answer, Unlisted) and response.status in DONE and not response.body.strip()
    open_ended = isinstance(answer, Rejected) and not answer.is_told
    if not response.reusable or not (empty or open_ended):
        return answer
    try:
        told = ask()
    except HostError:
        return answer
    if isinstance(answer, Unlisted) and told == Expected(nonce + 1):
        return Applied(nonce + 1)
    if isinstance(answer, Rejected) and told == Expected(nonce):
        return replace(answer, consumed=False)
    return answer
