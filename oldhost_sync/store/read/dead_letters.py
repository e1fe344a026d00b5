"""Dead letters: those that wait for a decision, and their groups by OldHost's reason, with what is held behind them.

Reasons that differ only in numbers, UUIDs, hashes or quoted names are one group ("no such guest 4711"): its name is the
reason's beginning with each of these written as #. Alerts about dead letters have the same groups, by a shorter
beginning (store/alerts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar

from sqlalchemy import Column, ColumnElement, bindparam, func, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.rules.alert_cause import REASON_LENGTH_MAX, cause_of
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.outbox.pending_fates import FATE, IDS_MAX
from oldhost_sync.store.record import RECORD, described
from oldhost_sync.store.tables import (
    IS_FATE_OF_CHANGE,
    outbox_events,
    pending_fates,
)

# --------------------------------------------------------------------------------------------------------------- groups

# Only this many dead letters are read, the oldest; the result says whether there are more.
LETTERS_MAX = 5_000
# The most groups in an answer, the largest: each is a form on a page. The others come when these are decided; all
# letters are in the list of dead letters, whatever their group.
GROUPS_MAX = 50

_NAMED = "o.id, o.entity_type, o.entity_id, o.event_type, o.source"
_LETTERS = text(
    f"(SELECT {_NAMED}, o.processed_at AS rejected_at, o.error FROM outbox_events o "
    "FORCE INDEX (ix_outbox_events_outcome) WHERE o.host = :host AND o.outcome = 'DEAD' AND o.id > :after "
    "ORDER BY o.id LIMIT :limit) UNION ALL "
    f"(SELECT {_NAMED}, p.decided_at AS rejected_at, p.error FROM pending_fates p STRAIGHT_JOIN outbox_events o "
    "FORCE INDEX (PRIMARY) ON o.id = p.change_id AND o.host = p.host WHERE p.host = :host AND p.outcome = 'DEAD' "
    "AND p.change_id > :after AND o.outcome IS NULL ORDER BY o.id LIMIT :limit) ORDER BY id LIMIT :limit"
).columns(rejected_at=UtcDateTime())
_HELD = text(
    "SELECT d.id, COUNT(*) AS held FROM outbox_events d FORCE INDEX (PRIMARY) STRAIGHT_JOIN outbox_events o "
    "FORCE INDEX (ix_outbox_events_status) ON o.host = d.host AND o.outcome IS NULL "
    "AND o.entity_type = d.entity_type AND o.entity_id = d.entity_id AND o.priority_class = 'TXN' AND o.id > d.id "
    "WHERE d.id IN :ids GROUP BY d.id"
).bindparams(bindparam("ids", expanding=True))


@dataclass(slots=True)
class LetterGroup:
    """Dead letters that OldHost rejected for the same reason; numbers in the reason are replaced by #."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "reason": "no such guest #",
        "example": "no such guest 7",
        "letters": 1,
        "entities": 1,
        "held": 1,
        "oldest_at": "2026-05-01T12:01:03Z",
        "newest_id": 4712,
        "event_types": ["checked_in"],
        "sources": ["api:front-desk"],
        "change_ids": [4712],
    }

    reason: str = field(metadata=described("At most 200 characters"))
    example: str = field(default="", metadata=described("OldHost's reason for the oldest of them, word for word"))
    letters: int = 0
    entities: int = field(default=0, metadata=described("How many entities they belong to"))
    held: int = field(default=0, metadata=described("How many TXN changes wait behind them"))
    oldest_at: datetime | None = field(default=None, metadata=described("When the oldest was rejected"))
    newest_id: int = field(
        default=0, metadata=described("Pass it as `up_to`, so that a decision covers only the letters that were shown")
    )
    event_types: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list, metadata=described("The applications that sent them"))
    change_ids: list[int] = field(default_factory=list, metadata=described("The oldest 20"))


@dataclass(frozen=True, slots=True)
class LetterGroups:
    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "groups": [LetterGroup.EXAMPLE],
        "other_reasons": 0,
        "other_letters": 0,
        "more": False,
    }

    groups: list[LetterGroup] = field(metadata=described("The 50 largest"))
    other_reasons: int = field(metadata=described("How many groups are not among them"))
    other_letters: int = field(metadata=described("The dead letters of those groups"))
    more: bool = field(metadata=described("There are more dead letters than the 5,000 that were read"))


IDS_SHOWN = 20


def list_groups(connection: Connection, host: str) -> LetterGroups:
    """The groups of the oldest LETTERS_MAX dead letters."""
    letters = connection.execute(_LETTERS, {"host": host, "after": 0, "limit": LETTERS_MAX + 1}).all()
    groups: dict[str, LetterGroup] = {}
    entities: dict[str, dict[tuple[str, str], int]] = {}
    for letter in letters[:LETTERS_MAX]:
        reason = cause_of(letter.error, REASON_LENGTH_MAX)
        group = groups.setdefault(reason, LetterGroup(reason, letter.error or "", oldest_at=letter.rejected_at))
        group.letters += 1
        group.newest_id = letter.id
        group.change_ids += [letter.id] if len(group.change_ids) < IDS_SHOWN else []
        group.event_types += [letter.event_type] if letter.event_type not in group.event_types else []
        group.sources += [letter.source] if letter.source not in group.sources else []
        entities.setdefault(reason, {}).setdefault((letter.entity_type, letter.entity_id), letter.id)
    by_size = sorted(groups.values(), key=lambda group: (-group.letters, group.reason))
    shown, others = by_size[:GROUPS_MAX], by_size[GROUPS_MAX:]
    oldest = {group.reason: list(entities[group.reason].values()) for group in shown}
    held = _held_behind(connection, [change_id for ids in oldest.values() for change_id in ids])
    for group in shown:
        group.entities = len(oldest[group.reason])
        group.held = sum(held.get(change_id, 0) for change_id in oldest[group.reason])
    other_letters = sum(group.letters for group in others)
    return LetterGroups(shown, len(others), other_letters, more=len(letters) > LETTERS_MAX)


def ids_of_group(
    connection: Connection, host: str, reason: str, *, after_id: int = 0, up_to: int | None = None, limit: int
) -> list[int]:
    """The oldest `limit` letters of a group with ids above `after_id` and up to `up_to`; reads at most LETTERS_MAX."""
    letters = connection.execute(_LETTERS, {"host": host, "after": after_id, "limit": LETTERS_MAX})
    of_group = (row.id for row in letters if cause_of(row.error, REASON_LENGTH_MAX) == reason)
    return list(islice((change_id for change_id in of_group if up_to is None or change_id <= up_to), limit))


def _held_behind(connection: Connection, change_ids: Sequence[int]) -> dict[int, int]:
    """How many TXN changes wait behind each letter, which must be the oldest of its entity."""
    held: dict[int, int] = {}
    for start in range(0, len(change_ids), IDS_MAX):
        values: dict[str, Any] = {"ids": change_ids[start : start + IDS_MAX]}
        held |= {row.id: row.held for row in connection.execute(_HELD, values)}
    return held


# Held changes are counted up to this for each letter: a page has hundreds of letters, and one entity may hold 50,000.
HELD_COUNTED_MAX = 1_000

_CHANGE = (
    outbox_events.c.id.label("change_id"),
    *(outbox_events.c[name] for name in ("idempotency_key", "entity_type", "entity_id", "event_type")),
    outbox_events.c.priority_class,
    outbox_events.c.created_at.label("accepted_at"),
)


def list_dead_letters(connection: Connection, host: str, *, after_id: int, limit: int) -> list[dict[str, Any]]:
    """Dead letters that wait for a decision, oldest first, each with how many are held behind it: at
    most HELD_COUNTED_MAX are counted.
    """
    return _letters(connection, host, lambda change_id: change_id > after_id, limit)


def dead_letters_of(connection: Connection, host: str, change_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Those of `change_ids` that are dead letters, as :func:`list_dead_letters` returns them."""
    return _letters(connection, host, lambda change_id: change_id.in_(change_ids), len(change_ids))


def _letters(
    connection: Connection, host: str, which: Callable[[Column[int]], ColumnElement[bool]], limit: int
) -> list[dict[str, Any]]:
    """`which`: a condition on the change's id."""
    by_id: dict[int, dict[str, Any]] = {}
    # A change that was rejected while its row was locked has its fate in `pending_fates`. In this order, so that one
    # that moves between the two queries is found twice and not missed.
    for table, change_id, decided_at in (
        (pending_fates, pending_fates.c.change_id, pending_fates.c.decided_at.label("processed_at")),
        (outbox_events, outbox_events.c.id, outbox_events.c.processed_at),
    ):
        fate = table.c
        query = select(*_CHANGE, decided_at, fate.nonce, fate.error, fate.unproven.label("unsure"))
        query = query.where(fate.host == host, fate.outcome == "DEAD", which(change_id)).order_by(change_id)
        if table is pending_fates:
            query = query.join(pending_fates, IS_FATE_OF_CHANGE)
        by_id |= {row.change_id: dict(row._mapping) for row in connection.execute(query.limit(limit))}  # noqa: SLF001
    letters = [by_id[change_id] for change_id in sorted(by_id)[:limit]]
    for letter in letters:
        letter["held"] = _count_held(connection, host, letter)
    return letters


def find_outcome(connection: Connection, host: str, change_id: int) -> tuple[bool, str | None]:
    """Whether there is such a change, and its fate so far."""
    row = connection.execute(
        select(FATE["outcome"])
        .outerjoin(pending_fates, IS_FATE_OF_CHANGE)
        .where(outbox_events.c.host == host, outbox_events.c.id == change_id)
    ).one_or_none()
    return (False, None) if row is None else (True, row.outcome)


def _count_held(connection: Connection, host: str, letter: dict[str, Any]) -> int:
    held = (
        select(outbox_events.c.id)
        .with_hint(outbox_events, "FORCE INDEX (ix_outbox_events_status)", "mysql")
        .where(
            outbox_events.c.host == host,
            outbox_events.c.outcome.is_(None),
            outbox_events.c.entity_type == letter["entity_type"],
            outbox_events.c.entity_id == letter["entity_id"],
            outbox_events.c.priority_class == "TXN",
            outbox_events.c.id > letter["change_id"],
        )
        .limit(HELD_COUNTED_MAX)
    )
    return connection.execute(select(func.count()).select_from(held.subquery())).scalar_one()
