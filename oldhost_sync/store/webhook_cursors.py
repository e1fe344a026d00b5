"""How far each webhook has accepted a host's feed: one row, which moves by compare-and-set only. So a sender that was
frozen, or an operator's replay meanwhile, can't be overwritten: whoever finds another cursor has lost its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select, text, update
from sqlalchemy.engine import Connection, Row

from oldhost_sync.store.read.change_feed import FeedCursor, latest_cursor
from oldhost_sync.store.tables import webhook_cursors

# Fates are counted up to this number.
BEHIND_MAX = 1000

_BEGIN = text(
    "INSERT INTO webhook_cursors (host, name, sequence, processed_at_us, change_id) "
    "VALUES (:host, :name, :sequence, :at_us, :id) ON DUPLICATE KEY UPDATE host = host"
)
_BEHIND = text(
    "SELECT COUNT(*), COALESCE(TIMESTAMPDIFF(SECOND, MIN(processed_at), UTC_TIMESTAMP(6)), 0) FROM ("
    "SELECT processed_at FROM outbox_events FORCE INDEX (ix_outbox_events_feed) "
    "WHERE host = :host AND fate_sequence >= :sequence AND (fate_sequence > :sequence OR processed_at > :at "
    "OR (processed_at = :at AND id > :id)) ORDER BY fate_sequence, processed_at, id LIMIT :most) AS fates"
)


@dataclass(frozen=True, slots=True)
class WebhookState:
    """`cursor`: the last fate that was accepted. `behind`: fates after it, at most BEHIND_MAX; `behind_s`: since when
    the oldest of them waits. `trouble`: why the next one was not accepted.
    """

    host: str
    name: str
    cursor: FeedCursor
    trouble: str | None
    is_disabled: bool
    behind: int = 0
    behind_s: int = 0


def begin(connection: Connection, host: str, name: str) -> None:
    """A webhook that is new begins with the fates that are decided from now on."""
    cursor = latest_cursor(connection, host)
    at = {"sequence": cursor.sequence, "at_us": cursor.processed_at_us, "id": cursor.change_id}
    connection.execute(_BEGIN, {"host": host, "name": name, **at})


def find(connection: Connection, host: str, name: str) -> WebhookState | None:
    found = connection.execute(select(webhook_cursors).where(*_key(host, name))).one_or_none()
    return None if found is None else _state(found)


def states(connection: Connection, hosts: Sequence[str]) -> list[WebhookState]:
    """All webhooks that have begun, also those that are set no more."""
    listed = select(webhook_cursors).where(webhook_cursors.c.host.in_(list(hosts)))
    order = webhook_cursors.c.host, webhook_cursors.c.name
    return [_with_lag(connection, _state(row)) for row in connection.execute(listed.order_by(*order)).all()]


def advance(connection: Connection, state: WebhookState, to: FeedCursor) -> bool:
    """Everything up to `to` was accepted. False: the cursor is elsewhere by now, and stays there."""
    return _set(connection, state, **to._asdict(), trouble=None)


def refuse(connection: Connection, state: WebhookState, trouble: str, *, disable: bool) -> None:
    """The fate after the cursor was not accepted."""
    _set(connection, state, trouble=trouble[:64], is_disabled=disable)


def replay(connection: Connection, host: str, name: str, since: FeedCursor) -> bool:
    """Deliver again, or for the first time, what follows `since`; a disabled webhook is enabled. False: unknown."""
    values = {**since._asdict(), "trouble": None, "is_disabled": False}
    if find(connection, host, name) is None:
        return False
    connection.execute(update(webhook_cursors).where(*_key(host, name)).values(values))
    return True


def _key(host: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return webhook_cursors.c.host == host, webhook_cursors.c.name == name


def _set(connection: Connection, state: WebhookState, **values: object) -> bool:
    same = [webhook_cursors.c[name] == value for name, value in state.cursor._asdict().items()]
    changed = update(webhook_cursors).where(*_key(state.host, state.name), *same).values(**values)
    return connection.execute(changed).rowcount == 1


def _state(row: Row[tuple[object, ...]]) -> WebhookState:
    cursor = FeedCursor(row.sequence, row.processed_at_us, row.change_id)
    return WebhookState(row.host, row.name, cursor, row.trouble, bool(row.is_disabled))


def _with_lag(connection: Connection, state: WebhookState) -> WebhookState:
    at = state.cursor.processed_at.replace(tzinfo=None)
    place = {"sequence": state.cursor.sequence, "at": at, "id": state.cursor.change_id}
    behind, behind_s = connection.execute(_BEHIND, {"host": state.host, **place, "most": BEHIND_MAX}).one()
    return WebhookState(state.host, state.name, state.cursor, state.trouble, state.is_disabled, behind, int(behind_s))
