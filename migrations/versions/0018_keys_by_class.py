"""An entity's LWW keys can be read one by one, however many other event types it has outstanding: the index of keys has
the class before the event type. It keeps its name, which an older release's statements give.
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One pass over the table; the server refuses rather than lock out writers."""
    _replace("host, entity_type, entity_id, processed_at, priority_class, event_type")


def downgrade() -> None:
    _replace("host, entity_type, entity_id, processed_at, event_type")


def _replace(columns: str) -> None:
    """In one statement: there is no moment without an index of this name."""
    op.execute(
        "ALTER TABLE outbox_events DROP INDEX IF EXISTS ix_outbox_events_key, "
        f"ADD INDEX ix_outbox_events_key ({columns}), ALGORITHM=INPLACE, LOCK=NONE"
    )
