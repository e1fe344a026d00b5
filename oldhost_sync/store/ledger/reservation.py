"""What a change gets when it is reserved: a nonce bound to its bytes, or a fate that needs no nonce. Pure.

In this order: it holds a nonce in doubt → the same bytes again (trap 15) · it has a fate → that fate · older than what
OldHost has for its key → STALE (trap 8) · equal to it, and nothing else of its entity was applied since → NO_OP · too
large for OldHost → DEAD · else a fresh nonce.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Row

from oldhost_sync.oldhost.errors import InvariantViolated
from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.oldhost.wire import operation_body, too_large
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, Outcome, PriorityClass
from oldhost_sync.policy.limits import HOST_BODY_BYTES_MAX
from oldhost_sync.store.ledger.completion import Ending, payload_hash
from oldhost_sync.store.ledger.statements import LedgerRow
from oldhost_sync.store.outbox.relay_queue import as_ref, unix_ms


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change about to be sent, with the applied state of its key and the nonce that it may hold."""

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    payload: dict[str, Any]
    outcome: str | None
    nonce: int | None
    error: str | None
    applied_change_id: int | None
    applied_hash: bytes | None
    other_applied_since: bool
    request_nonce: int | None
    request_status: str | None
    request_sends: int
    request_body: bytes | None
    ref: ChangeRef

    @staticmethod
    def of(row: Row[Any]) -> Candidate:
        named = ("idempotency_key", "entity_type", "entity_id", "event_type", "outcome", "nonce", "error")
        return Candidate(
            change_id=row.id,
            **{name: getattr(row, name) for name in named},
            priority_class=PriorityClass(row.priority_class),
            payload=json.loads(row.payload),
            applied_change_id=row.applied_change_id,
            applied_hash=row.applied_hash,
            other_applied_since=bool(row.other_applied_since),
            request_nonce=row.request_nonce,
            request_status=row.status,
            request_sends=row.sends or 0,
            request_body=row.body,
            ref=as_ref((row.id, row.priority_class, row.entity_type, row.entity_id, row.event_type, row.created_at)),
        )


def entry_of(
    change_id: int, candidate: Candidate | None, nonce: int, in_flight: Callable[[Candidate], bool]
) -> tuple[Reserved | ChangeResult, Ending | None]:
    """What `change_id` becomes, and the ending to record for it, if this decides one. `nonce`: the next free one.

    `in_flight`: whether an operation of the candidate's entity is in flight, or gets its nonce just now.
    """
    if candidate is None:
        return ChangeResult(change_id, Outcome.DISCARDED.value, error="no such change in the outbox"), None
    if candidate.request_status == "SENT":
        return _bound(candidate), None
    if candidate.outcome is not None:
        return ChangeResult(change_id, candidate.outcome, candidate.nonce, candidate.error), None
    if candidate.request_status is not None:
        raise InvariantViolated(f"change {change_id} waits, yet has a nonce that is {candidate.request_status}")
    ending = _needless(candidate, in_flight)
    if ending is None:
        body = _body(candidate)
        if not too_large(body):
            return Reserved.of(candidate, nonce=nonce, body=body, sends=0), None
        too_long = f"its operation is over OldHost's {HOST_BODY_BYTES_MAX} bytes"
        ending = Ending.of(candidate, Outcome.DEAD, error=too_long)
    return ChangeResult(change_id, ending.outcome.value, error=ending.error), ending


def was_lost(created_at_ms: int | None, accepted_at_ms: int | None) -> bool:
    """Whether the database lacks the change that the writer has, or has a different one under this id."""
    return accepted_at_ms is not None and created_at_ms != accepted_at_ms


def why_lost(change_id: int, created_at_ms: int | None) -> str:
    """The text of a halt. `created_at_ms`: of the change that now has this id, if there is one."""
    gone = "is not in the database"
    what = gone if created_at_ms is None else "is a different one in the database: its id was given out again"
    return (
        f"Change {change_id}, which the writer knows, {what}. Committed changes were lost, as by a fail-over to a "
        "replica that lacked the last ones, or by a restore. Compare with the applications' own data and have them "
        "submit again what is missing; then `resolve`, which gives up the lost changes."
    )


def _needless(candidate: Candidate, in_flight: Callable[[Candidate], bool]) -> Ending | None:
    if candidate.priority_class is not PriorityClass.LWW or candidate.applied_change_id is None:
        return None
    if candidate.applied_change_id > candidate.change_id:
        why = f"the newer change {candidate.applied_change_id} was applied before it"
        return Ending.of(candidate, Outcome.STALE, error=why)
    # An operation of another key may have written the same fields since then (such as a status by `checked_out`):
    # OldHost's state is what it last applied for the entity, of any event type.
    is_equal = candidate.applied_hash == payload_hash(candidate.payload) and not candidate.other_applied_since
    if is_equal and not in_flight(candidate):
        return Ending.of(candidate, Outcome.NO_OP)
    return None


def _bound(candidate: Candidate) -> Reserved:
    if candidate.request_nonce is None or candidate.request_body is None:
        raise InvariantViolated(f"change {candidate.change_id} is bound, but has no nonce or no body")
    return Reserved.of(
        candidate, nonce=candidate.request_nonce, body=candidate.request_body, sends=candidate.request_sends
    )


def _body(candidate: Candidate) -> bytes:
    named = ("entity_type", "entity_id", "event_type", "payload", "change_id", "idempotency_key")
    return operation_body(**{name: getattr(candidate, name) for name in named})


def is_new_loss(ledger: LedgerRow, change_id: int, accepted_at_ms: int) -> bool:
    """Whether no halt has ended since that change was accepted: the end of a halt gives up lost changes.

    By the clock, which may have been ahead at that end, and by the newest change that the writer had at the next
    opening (`losses_accepted_id`; None: there was none yet).
    """
    until, up_to = ledger.losses_accepted_at, ledger.losses_accepted_id
    return until is None or accepted_at_ms > unix_ms(until) or (up_to is not None and change_id > up_to)
