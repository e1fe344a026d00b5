"""The audit: who decided what and why, one row per operator's act, written in the transaction that carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import func, insert, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import CHANGE_ID_MAX
from oldhost_sync.policy.limits import OPERATOR_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.columns import storable
from oldhost_sync.store.record import HIDDEN, NUMBER, RECORD, described
from oldhost_sync.store.tables import operator_audit

ACTION_LENGTH_MAX = 32
# A detail may be a sentence that repeats the reason.
DETAIL_LENGTH_MAX = 2 * TEXT_LENGTH_MAX


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act: what was done, by whom, why, and on which change."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "id": 5,
        "action": "pause",
        "operator": "anna",
        "reason": "OldHost's operators asked for an hour without load",
        "change_id": None,
        "detail": {"message": "noted", "mode": None, "decision": "0f8b7c52"},
        "created_at": "2026-05-01T12:05:00Z",
        "channel": "api",
        "verified": True,
    }

    act_id: int = field(metadata=NUMBER)
    host: str = field(metadata=HIDDEN)
    action: str
    operator: str
    reason: str
    change_id: int | None
    detail: dict[str, Any] | None
    created_at: datetime
    channel: str = field(default="", metadata=described("api, console, command-line, temporal or writer"))
    verified: bool | None = field(
        default=None, metadata=described("true: the name is that of a token; false: it is only what the sender claims")
    )

    @property
    def until_ms(self) -> int:
        """When a pause ends, in ms since 1970; 0: when somebody resumes."""
        return int((self.detail or {}).get("until_ms", 0))

    @property
    def until(self) -> datetime | None:
        """When a pause ends by itself."""
        return datetime.fromtimestamp(self.until_ms / 1000, UTC) if self.until_ms else None

    @property
    def way(self) -> str:
        """In words: the channel of the act, and whether the operator's name was not verified."""
        return f"{self.channel}{', not verified' if self.verified is False else ''}"


def record_act(
    connection: Connection,
    *,
    host: str,
    action: str,
    operator: Actor,
    reason: str,
    change_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Record one act. Long names and reasons are cut; a number that no change can have is left out."""
    values: dict[str, Any] = {
        "host": host,
        "action": action,
        "operator": storable(operator.name, OPERATOR_LENGTH_MAX),
        "reason": storable(reason, TEXT_LENGTH_MAX),
        "change_id": change_id if change_id is not None and 0 < change_id <= CHANGE_ID_MAX else None,
        "created_at": text("UTC_TIMESTAMP(6)"),
        "channel": operator.channel.value,
        "verified": operator.verified,
    }
    if operator.doubt:
        detail = {**(detail or {}), "not_verified": operator.doubt}
    if detail is not None:
        values["detail"] = {name: _kept(value) for name, value in detail.items()}
    connection.execute(insert(operator_audit).values(**values))


def _kept(value: Any) -> Any:
    return storable(value, DETAIL_LENGTH_MAX) if isinstance(value, str) else value


def current_pause(connection: Connection, host: str) -> AuditEntry | None:
    """The pause in force; None if the last such act was a `resume`, or there was none.

    The last act is found by id, not by time: the database's clock may be set back.
    """
    acts = operator_audit.c
    last = select(func.max(acts.id)).where(acts.host == host, acts.action.in_(("pause", "resume")))
    statement = select(operator_audit).where(acts.id == last.scalar_subquery())
    row = connection.execute(statement).one_or_none()
    return AuditEntry(*row) if row is not None and row.action == "pause" else None


def list_acts(
    connection: Connection,
    host: str,
    *,
    limit: int = 100,
    before_id: int | None = None,
    action: str | None = None,
    change_id: int | None = None,
) -> list[AuditEntry]:
    """Newest first, optionally of one kind or about one change; the next page is the one with the last id as
    `before_id`.
    """
    acts = operator_audit.c
    statement = select(operator_audit).where(acts.host == host).order_by(acts.id.desc()).limit(limit)
    for column, value in ((acts.action, action), (acts.change_id, change_id)):
        if value is not None:
            statement = statement.where(column == value)
    if before_id is not None:
        statement = statement.where(acts.id < before_id)
    return [AuditEntry(*row) for row in connection.execute(statement)]
