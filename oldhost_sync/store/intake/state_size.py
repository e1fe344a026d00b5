"""The size of an entity's state: the database refuses what is above the limit, as the constraints of its tables say."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.limits import STATE_BYTES_MAX
from oldhost_sync.store.errors import InvalidChange
from oldhost_sync.store.tables import STATE_SIZE
from oldhost_sync.store.transactions import CHECK_VIOLATED, error_code


def is_state_too_large(error: DBAPIError) -> bool:
    return error_code(error) == CHECK_VIOLATED and STATE_SIZE in str(error.orig)


def state_too_large() -> InvalidChange:
    message = (
        "event_type is one too many for this entity: the last payloads of all its event types may have at most "
        f"{STATE_BYTES_MAX} bytes of JSON"
    )
    return InvalidChange(message, "event_type")
