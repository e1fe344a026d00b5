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
    """Each step finds what an interrupted run has left, and goes on."""
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
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_operator_audit_action", "operator_audit", ["host", "action", "id"], if_not_exists=True)
    op.create_index("ix_operator_audit_change", "operator_audit", ["host", "change_id"], if_not_exists=True)
    op.create_index("ix_operator_audit_created", "operator_audit", ["host", "created_at"], if_not_exists=True)
    op.create_table(
        "token_uses",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("fingerprint", sa.BINARY(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("last_used_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("host", "fingerprint"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "nonce_ledger",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("next_nonce", sa.BigInteger(), nullable=True),
        sa.Column("last_applied_nonce", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("banned_at", MOMENT, nullable=True),
        sa.Column("banned_until", MOMENT, nullable=True),
        sa.Column("ban_told_at", MOMENT, nullable=True),
        sa.Column("ban_is_over", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("halted", sa.String(length=1024), nullable=True),
        sa.Column("halted_expected_nonce", sa.BigInteger(), nullable=True),
        sa.Column("host_base", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("host_base_nonce", sa.BigInteger(), nullable=True),
        sa.Column("host_base_since", MOMENT, nullable=True),
        sa.Column("host_incarnation", sa.String(length=64), server_default=sa.text("''"), nullable=False),
        sa.Column("count_fell_at", sa.BigInteger(), nullable=True),
        sa.Column("apart_until", MOMENT, nullable=True),
        sa.Column("resolve_mode", sa.String(length=8), nullable=True),
        sa.Column("resolved_epoch", sa.BigInteger(), nullable=True),
        sa.Column("losses_accepted_at", MOMENT, nullable=True),
        sa.Column("losses_accepted_id", sa.BigInteger(), nullable=True),
        sa.Column("fate_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("next_nonce > last_applied_nonce", name="ck_nonce_ledger_order"),
        sa.PrimaryKeyConstraint("host"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "machine_clocks",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("machine", _id(64), nullable=False),
        sa.Column("began_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "machine"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "nonce_requests",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("nonce", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("body", mysql.MEDIUMBLOB(), nullable=False),
        sa.Column("mapping", sa.String(length=80), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("completed_at", MOMENT, nullable=True),
        sa.Column("answer", sa.String(length=1024), nullable=True),
        sa.Column("said_rejects", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("said_send", sa.Integer(), nullable=True),
        sa.Column("said_used", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("refused", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "status IN ('RESERVED', 'SENT', 'APPLIED', 'FAILED', 'UNSURE')", name="ck_nonce_requests_status"
        ),
        sa.PrimaryKeyConstraint("host", "nonce"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_nonce_requests_idempotency_key"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_nonce_requests_change", "nonce_requests", ["host", "change_id"], if_not_exists=True)
    op.create_index(
        "ix_nonce_requests_completed", "nonce_requests", ["host", "completed_at", "nonce"], if_not_exists=True
    )
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
        sa.Column("mapping", sa.String(length=80), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("completed_at", MOMENT, nullable=True),
        sa.Column("answer", sa.String(length=1024), nullable=True),
        sa.Column("said_rejects", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("said_send", sa.Integer(), nullable=True),
        sa.Column("said_used", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("refused", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("archived_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("reason", sa.String(length=1024), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index(
        "ix_nonce_requests_archive_archived",
        "nonce_requests_archive",
        ["host", "archived_at", "nonce"],
        if_not_exists=True,
    )
    op.create_index(
        "ix_nonce_requests_archive_change", "nonce_requests_archive", ["host", "change_id"], if_not_exists=True
    )
    op.create_index(
        "ix_nonce_requests_archive_completed",
        "nonce_requests_archive",
        ["host", "completed_at", "nonce"],
        if_not_exists=True,
    )
    op.create_index("ix_nonce_requests_archive_nonce", "nonce_requests_archive", ["host", "nonce"], if_not_exists=True)
    op.create_table(
        "settled_days",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("sha256", sa.BINARY(length=32), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("released_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("host", "day"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "console_sessions",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("digest", sa.BINARY(length=32), nullable=False),
        sa.Column("token_name", sa.String(length=64), nullable=False),
        sa.Column("token_fingerprint", sa.BINARY(length=32), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "digest"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_console_sessions_expires", "console_sessions", ["host", "expires_at"], if_not_exists=True)
    op.create_table(
        "sign_in_links",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("digest", sa.BINARY(length=32), nullable=False),
        sa.Column("token_name", sa.String(length=64), nullable=False),
        sa.Column("token_fingerprint", sa.BINARY(length=32), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("host", "digest"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_sign_in_links_expires", "sign_in_links", ["host", "expires_at"], if_not_exists=True)
    op.create_table(
        "load_samples",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("step_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("emergency", sa.Integer(), nullable=False),
        sa.Column("txn", sa.Integer(), nullable=False),
        sa.Column("lww", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("applied", sa.Integer(), nullable=False),
        sa.Column("emergency_ms", sa.BigInteger(), nullable=False),
        sa.Column("stopped", sa.String(length=16), nullable=True),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "step_s", "slot"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "host_sessions",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("opened_at_nonce", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("ended_because", sa.String(length=1024), nullable=True),
        sa.Column("lost_replies", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("host", "epoch"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "workers",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("name", _id(255), nullable=False),
        sa.Column("began_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("seen_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("left_at", MOMENT, nullable=True),
        sa.Column("knows_release", sa.SmallInteger(), nullable=False),
        sa.Column("round_trip_us", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("host", "name"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "token_usage",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("token_name", _id(64), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.Column("emergencies", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "token_name", "slot"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "applied_waits",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("priority_class", sa.String(length=16), nullable=False),
        sa.Column("upto_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.Column("total_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "priority_class", "upto_ms"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "counted_fates",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("booked_sequence", sa.BigInteger(), nullable=True),
        sa.Column("resolved_epoch", sa.BigInteger(), nullable=True),
        sa.Column("applied", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("superseded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("no_op", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("stale", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("discarded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("refused", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "units",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("id", _id(128), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("property_id", _id(128), nullable=True),
        sa.Column("status", sa.String(length=64), nullable=True),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("newest_change_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("OCTET_LENGTH(state) <= 262144", name="ck_units_state_size"),
        sa.PrimaryKeyConstraint("host", "id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_units_name", "units", ["host", "name", "id"], if_not_exists=True)
    op.create_index("ix_units_property", "units", ["host", "property_id", "id"], if_not_exists=True)
    op.create_table(
        "entities",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("id", _id(128), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("newest_change_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("updated_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint("OCTET_LENGTH(state) <= 262144", name="ck_entities_state_size"),
        sa.PrimaryKeyConstraint("host", "entity_type", "id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_entities_id", "entities", ["host", "id"], if_not_exists=True)
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
        sa.Column("traceparent", _id(55), nullable=True),
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
        sa.Column("unproven", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("fate_sequence", sa.BigInteger(), nullable=True),
        sa.Column("withdrawn_by", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('APPLIED', 'SUPERSEDED', 'NO_OP', 'STALE', 'DEAD', 'DISCARDED', 'WITHDRAWN', 'REFUSED')",
            name="ck_outbox_events_outcome",
        ),
        sa.CheckConstraint("priority_class IN ('EMERGENCY', 'TXN', 'LWW')", name="ck_outbox_events_priority_class"),
        sa.CheckConstraint("(outcome IS NULL) = (processed_at IS NULL)", name="ck_outbox_events_fate"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_outbox_events_idempotency_key"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_outbox_events_class", "outbox_events", ["host", "priority_class", "id"], if_not_exists=True)
    op.create_index(
        "ix_outbox_events_entity", "outbox_events", ["host", "entity_type", "entity_id", "id"], if_not_exists=True
    )
    op.create_index("ix_outbox_events_event", "outbox_events", ["host", "event_type", "id"], if_not_exists=True)
    op.create_index(
        "ix_outbox_events_feed", "outbox_events", ["host", "fate_sequence", "processed_at", "id"], if_not_exists=True
    )
    op.create_index(
        "ix_outbox_events_key",
        "outbox_events",
        ["host", "entity_type", "entity_id", "processed_at", "priority_class", "event_type"],
        if_not_exists=True,
    )
    op.create_index("ix_outbox_events_outcome", "outbox_events", ["host", "outcome", "id"], if_not_exists=True)
    op.create_index("ix_outbox_events_outstanding", "outbox_events", ["host", "processed_at", "id"], if_not_exists=True)
    op.create_index(
        "ix_outbox_events_status",
        "outbox_events",
        ["host", "outcome", "entity_type", "entity_id", "priority_class"],
        if_not_exists=True,
    )
    op.create_index(
        "ix_outbox_events_unrelayed",
        "outbox_events",
        ["host", "processed_at", "priority_class", "relayed_at", "id"],
        if_not_exists=True,
    )
    op.create_table(
        "pending_fates",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("change_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("entity_id", _id(128), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=True),
        sa.Column("superseded_by", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(length=1024), nullable=True),
        sa.Column("unproven", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("decided_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "outcome IN ('APPLIED', 'SUPERSEDED', 'NO_OP', 'STALE', 'DEAD', 'DISCARDED', 'WITHDRAWN', 'REFUSED')",
            name="ck_pending_fates_outcome",
        ),
        sa.PrimaryKeyConstraint("host", "change_id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index(
        "ix_pending_fates_entity", "pending_fates", ["host", "entity_type", "entity_id"], if_not_exists=True
    )
    op.create_table(
        "feed_horizon",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("pruned_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "webhook_cursors",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("name", _id(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("processed_at_us", sa.BigInteger(), nullable=False),
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("trouble", sa.String(length=64), nullable=True),
        sa.Column("is_disabled", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("host", "name"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
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
        sa.Column("mapping", _id(80), server_default=sa.text("''"), nullable=False),
        sa.Column("applied_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "entity_type", "entity_id", "event_type"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_applied_states_nonce", "applied_states", ["host", "nonce"], if_not_exists=True)
    op.create_index("ix_applied_states_mapping", "applied_states", ["host", "mapping"], if_not_exists=True)
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
        sa.Column("traceparent", _id(55), nullable=True),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("occurred_at", MOMENT, nullable=True),
        sa.Column("not_before", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("recorded_at", MOMENT, nullable=True),
        sa.Column("cancelled_at", MOMENT, nullable=True),
        sa.Column("change_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "idempotency_key", name="uq_scheduled_changes_idempotency_key"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index(
        "ix_scheduled_changes_due",
        "scheduled_changes",
        ["host", "recorded_at", "cancelled_at", "not_before", "id"],
        if_not_exists=True,
    )
    op.create_index(
        "ix_scheduled_changes_entity",
        "scheduled_changes",
        ["host", "entity_type", "entity_id", "recorded_at", "cancelled_at", "not_before", "id"],
        if_not_exists=True,
    )
    op.create_table(
        "submitted_keys",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("idempotency_key", _id(128), nullable=False),
        sa.Column("is_scheduled", sa.Boolean(), nullable=False),
        sa.Column("row_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("host", "idempotency_key"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "resyncs",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("property_id", _id(128), nullable=True),
        sa.Column("unit_id", _id(128), nullable=True),
        sa.Column("operator", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.String(length=1024), nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.Column("after_type", _id(64), nullable=False),
        sa.Column("after_id", _id(128), nullable=False),
        sa.Column("recorded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("first_change_id", sa.BigInteger(), nullable=True),
        sa.Column("last_change_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_resyncs_finished", "resyncs", ["host", "finished_at", "id"], if_not_exists=True)
    op.create_table(
        "event_rules",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("event_type", _id(64), nullable=False),
        sa.Column("priority_class", sa.String(length=16), nullable=False),
        sa.CheckConstraint("priority_class IN ('EMERGENCY', 'TXN', 'LWW')", name="ck_event_rules_priority_class"),
        sa.PrimaryKeyConstraint("host", "event_type"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "host_mappings",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("label", _id(80), nullable=False),
        sa.Column("definition", mysql.MEDIUMTEXT(), nullable=False),
        sa.Column("in_use", sa.Boolean(), nullable=True),
        sa.Column("installed_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "label"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ux_host_mappings_in_use", "host_mappings", ["host", "in_use"], unique=True, if_not_exists=True)
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
        sa.Column("occurrences", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("updated_at", MOMENT, nullable=True),
        sa.Column("acknowledged_at", MOMENT, nullable=True),
        sa.Column("acknowledged_by", sa.String(length=128), nullable=True),
        sa.Column("acknowledge_reason", sa.String(length=1024), nullable=True),
        sa.Column("closed_by", sa.String(length=128), nullable=True),
        sa.Column("close_reason", sa.String(length=1024), nullable=True),
        sa.CheckConstraint("severity IN ('info', 'warning', 'critical')", name="ck_alerts_severity"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "dedupe_key", "is_open", name="uq_alerts_dedupe_key"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_alerts_closed", "alerts", ["host", "closed_at", "id"], if_not_exists=True)
    op.create_index("ix_alerts_kind", "alerts", ["host", "kind", "id"], if_not_exists=True)
    op.create_index("ix_alerts_undelivered", "alerts", ["host", "delivered_at", "id"], if_not_exists=True)
    op.create_table(
        "alert_events",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
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
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_alert_events_alert", "alert_events", ["alert_id", "id"], if_not_exists=True)
    op.create_index("ix_alert_events_created", "alert_events", ["host", "created_at", "id"], if_not_exists=True)
    op.create_index("ix_alert_events_undelivered", "alert_events", ["host", "delivered_at", "id"], if_not_exists=True)
    op.create_table(
        "condition_lists",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "relay_lease",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "late_emergencies",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("started_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("is_open", sa.Boolean(), server_default=sa.text("1"), nullable=True),
        sa.Column("warned_ended", sa.Integer(), nullable=False),
        sa.Column("breached_ended", sa.Integer(), nullable=False),
        sa.Column("warned_waiting", sa.Integer(), nullable=False),
        sa.Column("breached_waiting", sa.Integer(), nullable=False),
        sa.Column("worst_ms", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(length=1024), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("host", "is_open", name="uq_late_emergencies_open"),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_index("ix_late_emergencies_started", "late_emergencies", ["host", "started_at"], if_not_exists=True)


def downgrade() -> None:
    op.drop_table("late_emergencies", if_exists=True)
    op.drop_table("relay_lease", if_exists=True)
    op.drop_table("condition_lists", if_exists=True)
    op.drop_table("alert_events", if_exists=True)
    op.drop_table("alerts", if_exists=True)
    op.drop_table("host_mappings", if_exists=True)
    op.drop_table("event_rules", if_exists=True)
    op.drop_table("resyncs", if_exists=True)
    op.drop_table("submitted_keys", if_exists=True)
    op.drop_table("scheduled_changes", if_exists=True)
    op.drop_table("applied_states", if_exists=True)
    op.drop_table("webhook_cursors", if_exists=True)
    op.drop_table("feed_horizon", if_exists=True)
    op.drop_table("pending_fates", if_exists=True)
    op.drop_table("outbox_events", if_exists=True)
    op.drop_table("entities", if_exists=True)
    op.drop_table("units", if_exists=True)
    op.drop_table("counted_fates", if_exists=True)
    op.drop_table("applied_waits", if_exists=True)
    op.drop_table("token_usage", if_exists=True)
    op.drop_table("workers", if_exists=True)
    op.drop_table("host_sessions", if_exists=True)
    op.drop_table("load_samples", if_exists=True)
    op.drop_table("sign_in_links", if_exists=True)
    op.drop_table("console_sessions", if_exists=True)
    op.drop_table("settled_days", if_exists=True)
    op.drop_table("nonce_requests_archive", if_exists=True)
    op.drop_table("nonce_requests", if_exists=True)
    op.drop_table("machine_clocks", if_exists=True)
    op.drop_table("nonce_ledger", if_exists=True)
    op.drop_table("token_uses", if_exists=True)
    op.drop_table("operator_audit", if_exists=True)
