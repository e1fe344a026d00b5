"""Alerts have a life cycle, and what the webhook is told of one is a row of its own. The release before can go on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NOW = sa.text("CURRENT_TIMESTAMP(6)")
MOMENT = mysql.DATETIME(fsp=6)
_COLUMNS = (
    ("updated_at", MOMENT),
    ("acknowledged_at", MOMENT),
    ("acknowledged_by", sa.String(length=128)),
    ("acknowledge_reason", sa.String(length=1024)),
    ("closed_by", sa.String(length=128)),
    ("close_reason", sa.String(length=1024)),
)
_INDEXES = (
    ("ix_alert_events_undelivered", "alert_events", ["host", "delivered_at", "id"]),
    ("ix_alert_events_alert", "alert_events", ["alert_id", "id"]),
    ("ix_alert_events_created", "alert_events", ["host", "created_at", "id"]),
    ("ix_alerts_kind", "alerts", ["host", "kind", "id"]),
)
# What the webhook has not taken yet is told to it in the new form.
_UNDELIVERED = (
    "INSERT INTO alert_events (host, alert_id, event, severity, message, occurrences, created_at) "
    "SELECT a.host, a.id, 'opened', a.severity, a.message, a.occurrences, a.created_at FROM alerts a "
    "WHERE a.delivered_at IS NULL AND NOT EXISTS (SELECT 1 FROM alert_events e WHERE e.alert_id = a.id) ORDER BY a.id"
)


def upgrade() -> None:
    for name, kind in _COLUMNS:
        op.add_column("alerts", sa.Column(name, kind, nullable=True), if_not_exists=True)
    op.create_table(
        "alert_events",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin"), nullable=False),
        sa.Column("alert_id", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("message", sa.String(length=1024), nullable=False),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("operator", sa.String(length=128), nullable=True),
        sa.Column("reason", sa.String(length=1024), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("delivered_at", MOMENT, nullable=True),
        sa.CheckConstraint("event IN ('opened', 'escalated', 'closed')", name="ck_alert_events_event"),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns, if_not_exists=True)
    op.execute(_UNDELIVERED)


def downgrade() -> None:
    op.drop_index("ix_alerts_kind", "alerts", if_exists=True)
    op.drop_table("alert_events", if_exists=True)
    for name, _ in _COLUMNS:
        op.drop_column("alerts", name, if_exists=True)
