"""The state that outlives a run of the writer: a pause, a ban, the number of dead letters, its alerts' numbers.

A writer that begins without state (its first start, or after its state was lost) must read it, or it would send while
paused, and its alerts could be ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.alerts import newest_sequence
from oldhost_sync.store.audit import AuditedAct, current_pause
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.outbox.outstanding_changes import dead_letters
from oldhost_sync.store.tables import nonce_ledger

_BAN_LEFT_MS = text(BAN_LEFT_MS)


@dataclass(frozen=True, slots=True)
class PersistedState:
    """`ban_left_ms`: the remaining time of the last ban, negative when it is over. `dead_letters`: how many there are.
    `alert_sequence`: the number of its newest alert.
    """

    pause: AuditedAct | None
    ban_left_ms: int | None
    dead_letters: int
    alert_sequence: int


def read_persisted_state(connection: Connection, host: str) -> PersistedState:
    """The state in the database now."""
    left = connection.execute(
        select(_BAN_LEFT_MS).select_from(nonce_ledger).where(nonce_ledger.c.host == host)
    ).scalar()
    return PersistedState(
        current_pause(connection, host),
        None if left is None else int(left),
        dead_letters(connection, host),
        newest_sequence(connection, host),
    )


def stops(connection: Connection, host: str) -> tuple[AuditedAct | None, bool]:
    """The pause, if the writer is paused (with who paused it); and whether the ledger is halted."""
    halted = connection.execute(select(nonce_ledger.c.halted).where(nonce_ledger.c.host == host)).scalar()
    return current_pause(connection, host), halted is not None
