"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NOW = sa.text("CURRENT_TIMESTAMP(6)")
MOMENT = mysql.DATETIME(fsp=6)


def _id(length: int) -> mysql.VARCHAR:
    """Keys and ids compare byte by byte and without padding."""
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    op.create_table(
        "units",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("id", _id(128), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("property_id", _id(128), nullable=True),
        sa.Column("status", sa.String(length=64), nullable=True),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("sync_status", sa.String(length=16), nullable=False),
        sa.Column("synced_at", MOMENT, nullable=True),
        sa.Column("newest_change_id", sa.BigInteger(), nullable=True),
        sa.Column("synced_change_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("sync_status IN ('PENDING_SYNC', 'SYNCED', 'SYNC_FAILED')", name="ck_units_sync_status"),
        sa.PrimaryKeyConstraint("host", "id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_units_sync_status", "units", ["host", "sync_status", "id"], if_not_exists=True)
    op.create_table(
        "entities",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("id", _id(128), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("sync_status", sa.String(length=16), nullable=False),
        sa.Column("synced_at", MOMENT, nullable=True),
        sa.Column("newest_change_id", sa.BigInteger(), nullable=True),
        sa.Column("synced_change_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("sync_status IN ('PENDING_SYNC', 'SYNCED', 'SYNC_FAILED')", name="ck_entities_sync_status"),
        sa.PrimaryKeyConstraint("host", "entity_type", "id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "outbox_events",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("request_hash", sa.BINARY(length=32), nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("entity_id", _id(128), nullable=False),
        sa.Column("event_type", _id(64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("priority_class", sa.String(length=16), nullable=False),
        sa.Column("source", sa.String(length=64), server_default=sa.text("'python'"), nullable=False),
        sa.Column("occurred_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("relayed_at", MOMENT, nullable=True),
        sa.Column("processed_at", MOMENT, nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("superseded_by", sa.BigInteger(), nullable=True),
        sa.Column("nonce", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(length=1024), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('APPLIED', 'SUPERSEDED', 'NO_OP', 'STALE', 'DEAD', 'DISCARDED', 'REFUSED')",
            name="ck_outbox_events_outcome",
        ),
        sa.CheckConstraint("priority_class IN ('EMERGENCY', 'TXN', 'LWW')", name="ck_outbox_events_priority_class"),
        sa.CheckConstraint("(outcome IS NULL) = (processed_at IS NULL)", name="ck_outbox_events_fate"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_outbox_events_idempotency_key"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index(
        "ix_outbox_events_key",
        "outbox_events",
        ["host", "entity_type", "entity_id", "processed_at", "event_type"],
        if_not_exists=True,
    )
    op.create_index("ix_outbox_events_outcome", "outbox_events", ["host", "outcome", "id"], if_not_exists=True)
    op.create_index("ix_outbox_events_outstanding", "outbox_events", ["host", "processed_at", "id"], if_not_exists=True)
    op.create_index(
        "ix_outbox_events_unrelayed",
        "outbox_events",
        ["host", "processed_at", "relayed_at", "priority_class", "id"],
        if_not_exists=True,
    )
    op.create_table(
        "nonce_ledger",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("next_nonce", sa.BigInteger(), nullable=True),
        sa.Column("last_applied_nonce", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("banned_until", MOMENT, nullable=True),
        sa.Column("halted", sa.String(length=1024), nullable=True),
        sa.Column("halted_expected_nonce", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("next_nonce > last_applied_nonce", name="ck_nonce_ledger_order"),
        sa.PrimaryKeyConstraint("host"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "nonce_requests",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("nonce", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("body", mysql.MEDIUMBLOB(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("completed_at", MOMENT, nullable=True),
        sa.Column("answer", sa.String(length=1024), nullable=True),
        sa.CheckConstraint("status IN ('RESERVED', 'SENT', 'APPLIED', 'FAILED')", name="ck_nonce_requests_status"),
        sa.PrimaryKeyConstraint("host", "nonce"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_nonce_requests_idempotency_key"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_nonce_requests_change", "nonce_requests", ["host", "change_id"], if_not_exists=True)
    op.create_index("ix_nonce_requests_status", "nonce_requests", ["host", "status", "nonce"], if_not_exists=True)
    op.create_table(
        "nonce_requests_archive",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("body", mysql.MEDIUMBLOB(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("completed_at", MOMENT, nullable=True),
        sa.Column("answer", sa.String(length=1024), nullable=True),
        sa.Column("archived_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("reason", sa.String(length=1024), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index(
        "ix_nonce_requests_archive_change", "nonce_requests_archive", ["host", "change_id"], if_not_exists=True
    )
    op.create_table(
        "applied_states",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("entity_id", _id(128), nullable=False),
        sa.Column("event_type", _id(64), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("payload_hash", sa.BINARY(length=32), nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=False),
        sa.Column("applied_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "entity_type", "entity_id", "event_type"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_applied_states_nonce", "applied_states", ["host", "nonce"], if_not_exists=True)
    op.create_table(
        "scheduled_changes",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("request_hash", sa.BINARY(length=32), nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("entity_id", _id(128), nullable=False),
        sa.Column("event_type", _id(64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("occurred_at", MOMENT, nullable=True),
        sa.Column("not_before", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("recorded_at", MOMENT, nullable=True),
        sa.Column("cancelled_at", MOMENT, nullable=True),
        sa.Column("change_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_scheduled_changes_idempotency_key"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index(
        "ix_scheduled_changes_due",
        "scheduled_changes",
        ["host", "recorded_at", "cancelled_at", "not_before", "id"],
        if_not_exists=True,
    )
    op.create_table(
        "event_rules",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("event_type", _id(64), nullable=False),
        sa.Column("priority_class", sa.String(length=16), nullable=False),
        sa.CheckConstraint("priority_class IN ('EMERGENCY', 'TXN', 'LWW')", name="ck_event_rules_priority_class"),
        sa.PrimaryKeyConstraint("host", "event_type"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("message", sa.String(length=1024), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=True),
        sa.Column("dedupe_key", _id(128), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("delivered_at", MOMENT, nullable=True),
        sa.Column("closed_at", MOMENT, nullable=True),
        sa.Column("is_open", sa.Boolean(), server_default=sa.text("1"), nullable=True),
        sa.CheckConstraint("severity IN ('info', 'warning', 'critical')", name="ck_alerts_severity"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "dedupe_key", "is_open", name="uq_alerts_dedupe_key"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_alerts_closed", "alerts", ["host", "closed_at", "id"], if_not_exists=True)
    op.create_index("ix_alerts_undelivered", "alerts", ["host", "delivered_at", "id"], if_not_exists=True)
    op.create_table(
        "operator_audit",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("operator", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.String(length=1024), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_operator_audit_created", "operator_audit", ["host", "created_at"], if_not_exists=True)
    op.create_index("ix_operator_audit_change", "operator_audit", ["host", "change_id"], if_not_exists=True)
    op.create_table(
        "relay_lease",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("relay_lease", if_exists=True)
    op.drop_table("operator_audit", if_exists=True)
    op.drop_table("alerts", if_exists=True)
    op.drop_table("event_rules", if_exists=True)
    op.drop_table("scheduled_changes", if_exists=True)
    op.drop_table("applied_states", if_exists=True)
    op.drop_table("nonce_requests_archive", if_exists=True)
    op.drop_table("nonce_requests", if_exists=True)
    op.drop_table("nonce_ledger", if_exists=True)
    op.drop_table("outbox_events", if_exists=True)
    op.drop_table("entities", if_exists=True)
    op.drop_table("units", if_exists=True)
