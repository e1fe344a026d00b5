"""The state of one host: for people, what stops it, what is wrong and what is in flight; and the load, for a plan and
for a writer that begins without state. Nothing is locked or written, and all but the load reads few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import ceil
from statistics import median
from typing import Any

from sqlalchemy import bindparam, exists, func, select, text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.drivers.mapping import OLDHOST, NotMapped, Rule, from_text
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.store.alerts import RaisedAlert, list_alerts, newest_list
from oldhost_sync.store.audit import AuditEntry, current_pause
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.intake.rules import classes_of, rules_of
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS, CALLED_A_REPLAY
from oldhost_sync.store.outbox.books import read_books
from oldhost_sync.store.outbox.outstanding_changes import ITS_UNIT, as_ref, dead_letters, outstanding_page, unix_ms
from oldhost_sync.store.outbox.pending_fates import IS_PENDING
from oldhost_sync.store.read import late_emergencies
from oldhost_sync.store.read.halt import HaltDecision, read_decision
from oldhost_sync.store.read.sessions import HostSession, Process, read_newest_session, read_workers
from oldhost_sync.store.tables import IS_FATE_OF_CHANGE, alerts, nonce_ledger, nonce_requests, outbox_events

# -------------------------------------------------------------------------------------------------------------- the ban

# OldHost bans for a replay, and does not say for which request. A send of ours can be a replay only if OldHost may have
# had its nonce before and did not answer: such an operation is still in doubt, as nothing is sent during a ban.

_BAN = text(
    "SELECT l.banned_at, l.banned_until, l.halted_expected_nonce, r.nonce, r.answer FROM nonce_ledger l "
    "LEFT JOIN nonce_requests r FORCE INDEX (ix_nonce_requests_status) ON r.host = l.host AND r.status = 'SENT' "
    # An operation in doubt has an answer if it was called a replay, or is sent again by an operator's decision.
    "AND (r.sends > 1 OR (r.sends = 1 AND r.answer IS NOT NULL) OR r.answer = :replay) "
    "WHERE l.host = :host AND NOT l.ban_is_over AND UTC_TIMESTAMP(6) BETWEEN l.banned_at AND l.banned_until "
    "ORDER BY r.nonce LIMIT 1"
).columns(banned_at=UtcDateTime(), banned_until=UtcDateTime())
_BY_ANOTHER = (
    "OldHost does not say why. By the ledger no send of ours was a replay: another program with our account sent one, "
    "or a proxy repeated one of ours."
)


@dataclass(frozen=True, slots=True)
class Ban:
    """`cause`: sentences for people."""

    began_at: datetime
    until: datetime
    cause: str


def read_ban(connection: Connection, host: str) -> Ban | None:
    """None if the ledger has no current ban."""
    row = connection.execute(_BAN, {"host": host, "replay": CALLED_A_REPLAY}).one_or_none()
    if row is None:
        return None
    return Ban(row.banned_at, row.banned_until, _cause(row.nonce, row.answer, row.halted_expected_nonce))


def _cause(nonce: int | None, answer: str | None, expected: int | None) -> str:
    """`expected`: the nonce that OldHost expected at the halt, if known."""
    if nonce is None:
        return _BY_ANOTHER
    if answer != CALLED_A_REPLAY:
        return f"We sent nonce {nonce} more than once, as no answer arrived: OldHost may have taken that for a replay."
    replay = f"OldHost called our first send of nonce {nonce} a replay: another program with our account had used it"
    only_that = expected is not None and expected > nonce + 1
    return f"{replay}." if only_that else f"{replay}, or a proxy delivered our operation twice."


# ----------------------------------------------------------------------------------------------- the usual service time

# The median of a sample, spread over the last twenty thousand operations. At 400 ms each these are two hours of
# sending, so that a slowdown of OldHost shows against it.

OPERATIONS, LOOKED_AT = 20_000, 100
# The smallest sample that counts.
LOOKED_AT_MIN = 10

_NONCES = text("SELECT MIN(nonce) AS first, MAX(nonce) AS last FROM nonce_requests WHERE host = :host")
# An operation is marked while the one before it is on the wire; its own time begins at that one's answer.
_TIMES = text(
    "SELECT TIMESTAMPDIFF(MICROSECOND, GREATEST(o.sent_at, COALESCE(b.completed_at, o.sent_at)), o.completed_at) "
    "FROM nonce_requests o FORCE INDEX (PRIMARY) LEFT JOIN nonce_requests b ON b.host = o.host "
    "AND b.nonce = o.nonce - 1 WHERE o.host = :host AND o.nonce IN :nonces AND o.status = 'APPLIED' AND o.sends = 1"
).bindparams(bindparam("nonces", expanding=True))


def usual_service_ms(connection: Connection, host: str) -> float | None:
    """None while too few operations were answered."""
    known = connection.execute(_NONCES, {"host": host}).one()
    if known.last is None:
        return None
    first = max(known.first, known.last - OPERATIONS + 1)
    step = ceil((known.last - first + 1) / LOOKED_AT)
    nonces = list(range(known.last, first - 1, -step))
    times = connection.execute(_TIMES, {"host": host, "nonces": nonces}).scalars().all()
    return median(times) / 1000 if len(times) >= LOOKED_AT_MIN else None


# --------------------------------------------------------------------------------------------------------------- status


def read_status(connection: Connection, host: str) -> dict[str, Any]:
    """The books, the ledger's row, and the figures that people ask for first."""
    others = read_other_mappings(connection, host)
    return {
        "books": asdict(read_books(connection, host)),
        "ledger": read_ledger(connection, host),
        "oldest_waiting_at": oldest_waiting_at(connection, host),
        "open_alerts": count_open_alerts(connection, host),
        "emergency_breaches": asdict(late_emergencies.breaches(connection, host)),
        "usual_service_ms": usual_service_ms(connection, host),
        "mapping": others.mapping,
        "states_of_other_mappings": others.states,
    }


def read_ledger(connection: Connection, host: str) -> dict[str, Any] | None:
    """The host's row of the ledger; None before the first session."""
    row = connection.execute(select(nonce_ledger).where(nonce_ledger.c.host == host)).one_or_none()
    return None if row is None else {name: value for name, value in row._mapping.items() if name != "host"}  # noqa: SLF001


def oldest_waiting_at(connection: Connection, host: str) -> datetime | None:
    """When the oldest change without a fate was accepted (the 4 h promise is measured from it)."""
    return connection.execute(
        select(outbox_events.c.created_at)
        .where(outbox_events.c.host == host, outbox_events.c.processed_at.is_(None), ~exists().where(IS_FATE_OF_CHANGE))
        .order_by(outbox_events.c.id)
        .limit(1)
    ).scalar()


def count_open_alerts(connection: Connection, host: str) -> int:
    query = select(func.count()).where(alerts.c.host == host, alerts.c.closed_at.is_(None))
    return connection.execute(query).scalar_one()


# ------------------------------------------------------------------------------------------------------------ condition

# How many alerts are read; their number is given separately.
ALERTS_MAX = 50
# Those that OldHost gets next. Four sends of up to 100 operations each may be in flight, at a quick host.
IN_FLIGHT_SHOWN = 40

_BOUND = (
    select(
        *(nonce_requests.c[name] for name in ("nonce", "status", "change_id", "sent_at")),
        nonce_requests.c.created_at.label("reserved_at"),
        *(outbox_events.c[name] for name in ("priority_class", "entity_type", "entity_id", "event_type")),
    )
    .outerjoin(outbox_events, outbox_events.c.id == nonce_requests.c.change_id)
    .where(nonce_requests.c.status.in_(["RESERVED", "SENT"]))
    .order_by(nonce_requests.c.nonce)
    .limit(IN_FLIGHT_SHOWN + 1)
)


@dataclass(frozen=True, slots=True)
class HostCondition:
    """`ledger`: its row, None before the first session. `pause`: the one in force. `alerts`: open ones, the worst
    first; `open_alerts`: how many there are. `bound`: operations that hold a nonce and have not ended yet, by nonce;
    `bound_is_cut`: there are more. `session`: the newest that a worker has recorded. `ban`: the current one.
    `decision`: about a halt, not carried out yet. `workers`: those at work first, then those seen last.
    """

    ledger: dict[str, Any] | None
    pause: AuditEntry | None
    alerts: list[RaisedAlert]
    open_alerts: int
    bound: list[dict[str, Any]]
    oldest_waiting_at: datetime | None
    session: HostSession | None = None
    ban: Ban | None = None
    decision: HaltDecision | None = None
    workers: Sequence[Process] = ()
    bound_is_cut: bool = False


def read_condition(connection: Connection, host: str) -> HostCondition:
    open_alerts = list_alerts(connection, host, limit=ALERTS_MAX)
    rank = {"critical": 0, "warning": 1}
    bound = [dict(row._mapping) for row in connection.execute(_BOUND.where(nonce_requests.c.host == host))]  # noqa: SLF001
    return HostCondition(
        ledger=read_ledger(connection, host),
        pause=current_pause(connection, host),
        alerts=sorted(open_alerts, key=lambda alert: (rank.get(alert.severity, 2), -alert.alert_id)),
        open_alerts=len(open_alerts) if len(open_alerts) < ALERTS_MAX else count_open_alerts(connection, host),
        bound=bound[:IN_FLIGHT_SHOWN],
        bound_is_cut=len(bound) > IN_FLIGHT_SHOWN,
        oldest_waiting_at=oldest_waiting_at(connection, host),
        session=read_newest_session(connection, host),
        ban=read_ban(connection, host),
        decision=read_decision(connection, host),
        workers=read_workers(connection, host),
    )


# --------------------------------------------------------------------------------------- what outlives the writer's run

# A writer that begins without state (its first start, or after its state was lost) must read it, or it would send while
# paused, and its conditions could be ignored.

_BAN_LEFT_MS = text(BAN_LEFT_MS)


@dataclass(frozen=True, slots=True)
class PersistedState:
    """`ban_left_ms`: the remaining time of the last ban, negative when it is over. `dead_letters`: how many there are.
    `conditions_sequence`: the number of the writer's last list of conditions.
    """

    pause: AuditEntry | None
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


def blockers(connection: Connection, host: str) -> tuple[AuditEntry | None, bool]:
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
    `ban_left_ms`, `pause_left_ms`: 0 if there is none that ends by itself. `stopped`: why nothing is sent, if the
    writer is paused or halted. `cut`: there are more changes.
    """

    now_ms: int
    outstanding: list[ChangeRef]
    scheduled: list[ChangeRef] = field(default_factory=list)
    ban_left_ms: int = 0
    pause_left_ms: int = 0
    stopped: str = ""
    dead_letters: int = 0
    cut: bool = False

    @property
    def blocked_ms(self) -> int:
        """How long nothing can be sent, as far as that is known."""
        return max(self.ban_left_ms, self.pause_left_ms)

    def notes(self) -> list[str]:
        """What a reader of the plan must know: what stops sending, and what the plan leaves out."""
        notes = []
        if self.stopped:
            notes.append(f"The writer sends nothing now: {self.stopped}. The plan assumes that it resumes now.")
        if self.ban_left_ms:
            notes.append(f"OldHost has banned us for another {self.ban_left_ms / 1000:,.0f} s.")
        if self.pause_left_ms:
            notes.append(f"It is paused for another {self.pause_left_ms / 1000:,.0f} s.")
        if self.dead_letters:
            waiting = f"{self.dead_letters} dead letters, and the changes held behind them, wait for an operator"
            notes.append(f"{waiting}; they are not planned.")
        if self.cut:
            notes.append(f"There are more changes; only the oldest {len(self.outstanding):,} are planned.")
        if not self.outstanding and not self.scheduled:
            notes.append("Nothing is outstanding, and nothing is scheduled.")
        return notes


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
    until = paused.until if paused else None
    pause_left_ms = 0 if until is None else max(0, round((until - now.replace(tzinfo=UTC)).total_seconds() * 1000))
    by = f"it is paused by {paused.operator}" if paused and not pause_left_ms else ""
    stopped = "it is halted until `resolve`" if halted else by
    return LiveLoad(
        now_ms=unix_ms(now),
        outstanding=outstanding,
        scheduled=scheduled,
        ban_left_ms=max(0, state.ban_left_ms or 0),
        pause_left_ms=pause_left_ms,
        stopped=stopped,
        dead_letters=state.dead_letters,
        cut=more or len(scheduled) == at_most,
    )


def _scheduled(connection: Connection, host: str, at_most: int) -> list[ChangeRef]:
    rules = rules_of(connection, host)
    rows = connection.execute(_SCHEDULED, {"host": host, "limit": at_most})
    return [as_ref((row.id, rules.get(row.rule, PriorityClass.TXN), *row[2:])) for row in rows]


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
    rows = connection.execute(_LANES, {"host": host})
    return {row.name: {"depth": int(row.depth), "oldest_age_ms": int(row.oldest_ms)} for row in rows}


# ------------------------------------------------------------------------------------- states that another mapping made

# How many of OldHost's states another mapping made than the host's of now. Nothing is wrong with them: operators are
# offered a resync, which sends them in the new form. It counts what a resync sends: keys whose changes are LWW, where
# the rule of now is another one. Once a resync of all entities that was asked for since has ended, none is counted:
# what is left is only overwritten by what comes.

_IN_USE = (
    "SELECT m.label, m.definition, EXISTS (SELECT 1 FROM resyncs r WHERE r.host = m.host AND r.property_id IS NULL "
    "AND r.unit_id IS NULL AND r.created_at >= m.installed_at AND r.finished_at IS NOT NULL) AS is_resynced "
    "FROM host_mappings m WHERE m.host = %s AND m.in_use = 1"
)
_OTHERS = (
    "SELECT a.entity_type, a.event_type, a.mapping, COUNT(*) AS states FROM applied_states a "
    "FORCE INDEX (ix_applied_states_mapping) WHERE a.host = %s AND a.mapping <> '' AND a.mapping <> %s "
    "GROUP BY a.entity_type, a.event_type, a.mapping"
)
_DEFINITIONS = "SELECT label, definition FROM host_mappings WHERE host = %s"


@dataclass(frozen=True, slots=True)
class OtherMappings:
    """`mapping`: name and version of the one of now. `states`: how many others have made."""

    mapping: str
    states: int = 0


def read_other_mappings(connection: Connection, host: str) -> OtherMappings:
    now = connection.exec_driver_sql(_IN_USE, (host,)).one_or_none()
    if now is None:
        return OtherMappings(OLDHOST.label)
    groups = [] if now.is_resynced else connection.exec_driver_sql(_OTHERS, (host, now.label)).all()
    if not groups:
        return OtherMappings(now.label)
    classes = classes_of(connection, host, sorted({group.event_type for group in groups}))
    rows = connection.exec_driver_sql(_DEFINITIONS, (host,)).all()
    definitions = {row.label: row.definition for row in rows}

    def rule(label: str, state: Row[Any]) -> Rule | str:
        try:
            return from_text(definitions[label]).rule(state.event_type, state.entity_type)
        except NotMapped:
            return "none"

    states = sum(
        group.states
        for group in groups
        if classes[group.event_type] == PriorityClass.LWW
        and group.mapping in definitions
        and rule(group.mapping, group) != rule(now.label, group)
    )
    return OtherMappings(now.label, int(states))
