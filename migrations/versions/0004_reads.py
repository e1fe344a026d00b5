"""Indexes of what people list and search. Only adds, while the product goes on writing."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INDEXES = {
    "outbox_events": {
        "ix_outbox_events_class": "host, priority_class, id",
        "ix_outbox_events_event": "host, event_type, id",
        "ix_outbox_events_entity": "host, entity_type, entity_id, id",
    },
    "entities": {"ix_entities_id": "host, id"},
    "operator_audit": {"ix_operator_audit_action": "host, action, id"},
}


def upgrade() -> None:
    """One pass over each table; the server refuses rather than lock out writers."""
    for table, indexes in INDEXES.items():
        added = ", ".join(f"ADD INDEX IF NOT EXISTS {name} ({columns})" for name, columns in indexes.items())
        op.execute(f"ALTER TABLE {table} {added}, ALGORITHM=INPLACE, LOCK=NONE")


def downgrade() -> None:
    for table, indexes in INDEXES.items():
        op.execute(f"ALTER TABLE {table} " + ", ".join(f"DROP INDEX IF EXISTS {name}" for name in indexes))
