"""The live state of a host as the database has it: for a writer that begins without state, for a plan, and for a status
while the writer does not answer. By the database's clock; nothing is locked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.store.alerts import newest_list
from oldhost_sync.store.audit import AuditedAct, current_pause
from oldhost_sync.store.intake.rules import rules_of
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.outbox.outstanding_changes import dead_letters, outstanding_page
from oldhost_sync.store.outbox.pending_fates import IS_PENDING
from oldhost_sync.store.outbox.relay_queue import ITS_UNIT, as_ref
from oldhost_sync.store.tables import nonce_ledger

# --------------------------------------------------------------------------------------- what outlives the writer's run

# A writer that begins without state (its first start, or after its state was lost) must read it, or it would send while
# paused, and its conditions could be ignored.

_BAN_LEFT_MS = text(BAN_LEFT_MS)


@dataclass(frozen=True, slots=True)
class PersistedState:
    """`ban_left_ms`: the remaining time of the last ban, negative when it is over. `dead_letters`: how many there are.
    `conditions_sequence`: the number of the writer's last list of conditions.
    """

    pause: AuditedAct | None
    ban_left_ms: int | None
    dead_letters: int
    conditions_sequence: int


def read_persisted_state(connection: Connection, host: str) -> PersistedState:
    """The state in the database now."""
    left = connection.execute(
        select(_BAN_LEFT_MS).select_from(nonce_ledger).where(nonce_ledger.c.host == host)
    ).scalar()
    return PersistedState(
        current_pause(connection, host),
        None if left is None else int(left),
        dead_letters(connection, host),
        newest_list(connection, host),
    )


def blockers(connection: Connection, host: str) -> tuple[AuditedAct | None, bool]:
    """The pause, if the writer is paused (with who paused it); and whether the ledger is halted."""
    halted = connection.execute(select(nonce_ledger.c.halted).where(nonce_ledger.c.host == host)).scalar()
    return current_pause(connection, host), halted is not None


# -------------------------------------------------------------------------------------------------- the start of a plan

# Changes held behind dead letters wait for an operator and are left out.

PAGE = 2_000
# More than a writer ever holds; above it a plan would take minutes, and the 4 h promise is long broken.
CHANGES_MAX = 200_000

_SCHEDULED = text(
    "SELECT o.id, o.event_type AS rule, o.entity_type, o.entity_id, o.event_type, o.not_before, u.property_id "
    f"FROM scheduled_changes o FORCE INDEX (ix_scheduled_changes_due) {ITS_UNIT} "
    "WHERE o.host = :host AND o.recorded_at IS NULL AND o.cancelled_at IS NULL "
    "ORDER BY o.not_before, o.id LIMIT :limit"
)
_NOW = text("SELECT UTC_TIMESTAMP(6)")


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """`scheduled`: as refs that are accepted when they are due; their ids are unique only among themselves.
    `ban_left_ms`: 0 if there is no ban. `stopped`: why nothing is sent, if the writer is paused or halted. `cut`: there
    are more changes.
    """

    now_ms: int
    outstanding: list[ChangeRef]
    scheduled: list[ChangeRef] = field(default_factory=list)
    ban_left_ms: int = 0
    stopped: str = ""
    dead_letters: int = 0
    cut: bool = False

    def notes(self) -> list[str]:
        """What a reader of the plan must know: what stops sending, and what the plan leaves out."""
        found = []
        if self.stopped:
            found.append(f"The writer sends nothing now: {self.stopped}. The plan assumes that it resumes now.")
        if self.ban_left_ms:
            found.append(f"OldHost has banned us for another {self.ban_left_ms / 1000:,.0f} s.")
        if self.dead_letters:
            waiting = f"{self.dead_letters} dead letters, and the changes held behind them, wait for an operator"
            found.append(f"{waiting}; they are not planned.")
        if self.cut:
            found.append(f"There are more changes; only the oldest {len(self.outstanding):,} are planned.")
        if not self.outstanding and not self.scheduled:
            found.append("Nothing is outstanding, and nothing is scheduled.")
        return found


def read_live_load(connection: Connection, host: str, at_most: int = CHANGES_MAX) -> LiveLoad:
    """The live state of one host."""
    now: datetime = connection.execute(_NOW).scalar_one()
    outstanding: list[ChangeRef] = []
    after_id, more = 0, True
    while more and len(outstanding) < at_most:
        page = outstanding_page(connection, host, after_id, min(PAGE, at_most - len(outstanding)))
        outstanding += page.refs
        after_id, more = page.last_id, page.more
    scheduled = _scheduled(connection, host, at_most)
    state = read_persisted_state(connection, host)
    paused, halted = blockers(connection, host)
    stopped = "it is halted until `resolve`" if halted else f"it is paused by {paused.operator}" if paused else ""
    return LiveLoad(
        now_ms=int(now.replace(tzinfo=UTC).timestamp() * 1000),
        outstanding=outstanding,
        scheduled=scheduled,
        ban_left_ms=max(0, state.ban_left_ms or 0),
        stopped=stopped,
        dead_letters=state.dead_letters,
        cut=more or len(scheduled) == at_most,
    )


def _scheduled(connection: Connection, host: str, at_most: int) -> list[ChangeRef]:
    rules = rules_of(connection, host)
    found = connection.execute(_SCHEDULED, {"host": host, "limit": at_most})
    return [as_ref((row.id, rules.get(row.rule, PriorityClass.TXN), *row[2:])) for row in found]


# ---------------------------------------------------------------------------------------------------------------- lanes

# From the outbox alone. Debounced changes count, too, which the writer's own lanes do not have.

# Counting stops there, for each class: it takes a few milliseconds.
LANE_COUNTED_MAX = 10_000

_OF_CLASS = (
    "(SELECT '{cls}' AS name, COUNT(*) AS depth, "
    "GREATEST(0, COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(w.created_at), UTC_TIMESTAMP(6)), 0)) DIV 1000 AS oldest_ms "
    "FROM (SELECT o.created_at FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = :host "
    "AND o.processed_at IS NULL AND o.priority_class = '{cls}' "
    f"AND NOT {IS_PENDING} LIMIT {LANE_COUNTED_MAX}) w)"
)
_LANES = text(" UNION ALL ".join(_OF_CLASS.format(cls=cls.value) for cls in PriorityClass))


def waiting_lanes(connection: Connection, host: str) -> dict[str, dict[str, int]]:
    """By class, in the form of the writer's lanes: `depth` and `oldest_age_ms`."""
    found = connection.execute(_LANES, {"host": host})
    return {row.name: {"depth": int(row.depth), "oldest_age_ms": int(row.oldest_ms)} for row in found}
