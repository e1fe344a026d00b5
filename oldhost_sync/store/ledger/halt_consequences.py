"""What either way of ending a halt would do, in numbers, before anybody decides. It changes nothing.

The same cases as in `halt_resolution`, which carries a decision out; a test holds that both count alike. What OldHost
expects is what it was last found to expect: `resolve` asks again, and decides nothing where that has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY

BACK, FORWARD, UNKNOWN_COUNT = "back", "forward", "unknown"
OPERATIONS_SHOWN = 50

_LEDGER = text(
    "SELECT next_nonce, last_applied_nonce, epoch, halted, halted_expected_nonce, resolve_mode, updated_at "
    "FROM nonce_ledger WHERE host = :host"
).columns(updated_at=UtcDateTime())
# By status, so that the index answers and no body is read.
_FROM = text(
    "SELECT COUNT(*) AS operations, MAX(nonce) AS highest FROM nonce_requests FORCE INDEX (ix_nonce_requests_status) "
    "WHERE host = :host AND status IN ('SENT', 'APPLIED', 'FAILED') AND nonce >= :nonce"
)
# In doubt. `never_taken`: OldHost refused each of its sends, and it was not called a replay as the last before what
# OldHost expects (then it may have been delivered twice).
_IN_DOUBT = text(
    "SELECT r.nonce < :expected AS below, r.sends = 0 AND NOT (r.nonce = :expected - 1 "
    f"AND COALESCE(r.answer, '') = '{CALLED_A_REPLAY}') AS never_taken, r.sends = 0 AS unwritten, "
    "COUNT(*) AS operations, MAX(r.nonce) AS highest "
    "FROM nonce_requests r FORCE INDEX (ix_nonce_requests_status) WHERE r.host = :host AND r.status = 'SENT' "
    "GROUP BY below, never_taken, unwritten"
)
_OPERATIONS = text(
    "SELECT r.nonce, r.change_id, r.status, r.sends, r.sent_at, r.answer, o.entity_type, o.entity_id, o.event_type, "
    "o.priority_class FROM nonce_requests r FORCE INDEX (PRIMARY) LEFT JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = :host AND r.nonce >= :nonce AND r.status IN :statuses ORDER BY r.nonce LIMIT :limit"
)


@dataclass(slots=True)
class Consequences:
    """Of one way. `given_up`: applied in the books, lost at OldHost and not sent again; `counted_applied`: in doubt,
    and taken as applied; `sent_again`: byte for byte, under the same nonces; `waiting_again`: under new nonces.
    `next_nonce`: where the count goes on; None: where OldHost says.
    """

    says: str
    given_up: int = 0
    counted_applied: int = 0
    sent_again: int = 0
    waiting_again: int = 0
    next_nonce: int | None = None


@dataclass(slots=True)
class HaltView:
    """`difference`: back, forward or unknown; `operations`: the first that are at stake, `at_stake` how many there are.
    `decided`: a `resolve` that waits until OldHost can be asked.
    """

    reason: str
    difference: str
    expected_nonce: int | None
    next_nonce: int | None
    last_applied_nonce: int | None
    epoch: int
    decided: str | None
    updated_at: datetime
    at_stake: int
    adopt: Consequences
    resend: Consequences
    operations: list[dict[str, Any]] = field(default_factory=list)


def read_halt(connection: Connection, host: str) -> HaltView | None:
    """The halt of `host` with both choices; None when it is not halted."""
    ledger = connection.execute(_LEDGER, {"host": host}).one_or_none()
    if ledger is None or ledger.halted is None:
        return None
    expected, last = ledger.halted_expected_nonce, ledger.last_applied_nonce
    if expected is None or last is None:
        difference, (adopt, resend) = UNKNOWN_COUNT, _of_unknown_count(never_asked=last is None)
    elif expected <= last:
        difference, (adopt, resend) = BACK, _of_back(connection, host, expected, last)
    else:
        difference, (adopt, resend) = FORWARD, _of_forward(connection, host, expected)
    shown, at_stake = _at_stake(connection, host, expected if difference == BACK else None)
    return HaltView(
        reason=ledger.halted,
        difference=difference,
        expected_nonce=expected,
        next_nonce=ledger.next_nonce,
        last_applied_nonce=last,
        epoch=ledger.epoch,
        decided=ledger.resolve_mode,
        updated_at=ledger.updated_at,
        at_stake=at_stake,
        adopt=adopt,
        resend=resend,
        operations=shown,
    )


def _of_unknown_count(*, never_asked: bool) -> tuple[Consequences, Consequences]:
    if never_asked:
        says = "The halt is lifted: OldHost was never asked what it expects, and nothing was sent."
        return Consequences(says), Consequences(says)
    asked = "OldHost is asked what it expects. Where that fits the ledger, the halt is lifted and nothing else changes"
    earlier = "where it expects an earlier nonce, nothing is decided and you are asked again"
    return (
        Consequences(f"{asked}; where it expects a later one, operations in doubt count as applied; {earlier}."),
        Consequences(f"{asked}; where it expects a later one, operations in doubt are sent again; {earlier}."),
    )


def _of_back(connection: Connection, host: str, expected: int, last: int) -> tuple[Consequences, Consequences]:
    kept = connection.execute(_FROM, {"host": host, "nonce": expected}).one()
    beyond = int(connection.execute(_FROM, {"host": host, "nonce": last + 1}).one().operations)
    lost = last - expected + 1
    adopt = Consequences(
        f"OldHost's count is taken: the {lost} operation(s) that it lost are not sent again.",
        given_up=lost,
        waiting_again=beyond,
        next_nonce=expected,
    )
    highest = int(kept.highest or expected - 1)
    if kept.operations == highest - expected + 1:
        says = f"OldHost gets the {kept.operations} operation(s) from nonce {expected} on again, as they were."
        return adopt, Consequences(says, sent_again=kept.operations, next_nonce=highest + 1)
    says = f"The ledger no longer has all of them: the {kept.operations} that it has wait again and get new nonces."
    return adopt, Consequences(
        says, waiting_again=kept.operations, given_up=highest - expected + 1 - kept.operations, next_nonce=expected
    )


def _of_forward(connection: Connection, host: str, expected: int) -> tuple[Consequences, Consequences]:
    doubts = connection.execute(_IN_DOUBT, {"host": host, "expected": expected}).all()
    below = sum(row.operations for row in doubts if row.below)
    refused = sum(row.operations for row in doubts if row.below and row.never_taken)
    beyond = [row for row in doubts if not row.below]

    def counted(says: str, again: int, applied: int) -> Consequences:
        # What follows one that waits again, and was never written, loses its nonce, too.
        released = [row for row in beyond if row.unwritten] if again else []
        kept = max((row.highest + 1 for row in beyond if row not in released), default=expected)
        waiting = again + sum(row.operations for row in released)
        return Consequences(says, counted_applied=applied, waiting_again=waiting, next_nonce=kept)

    taken = "OldHost's count is taken"
    applied = below - refused
    return (
        counted(
            f"{taken}: {applied} operation(s) in doubt count as applied, {refused} that it refused each time wait.",
            refused,
            applied,
        ),
        counted(f"{taken}: {below} operation(s) in doubt are sent again under new nonces.", below, 0),
    )


def _at_stake(connection: Connection, host: str, from_nonce: int | None) -> tuple[list[dict[str, Any]], int]:
    """From a nonce on, or what is in doubt."""
    statuses = ["SENT"] if from_nonce is None else ["SENT", "APPLIED", "FAILED"]
    listed = ", ".join(f"'{status}'" for status in statuses)
    count = text(
        "SELECT COUNT(*) FROM nonce_requests FORCE INDEX (ix_nonce_requests_status) "
        f"WHERE host = :host AND status IN ({listed}) AND nonce >= :nonce"
    )
    values = {"host": host, "nonce": from_nonce or 0}
    operations = text(_OPERATIONS.text.replace(":statuses", f"({listed})")).columns(sent_at=UtcDateTime())
    found = connection.execute(operations, values | {"limit": OPERATIONS_SHOWN})
    shown = [dict(row._mapping) for row in found]  # noqa: SLF001 - a row by name
    return shown, int(connection.execute(count, values).scalar_one())
