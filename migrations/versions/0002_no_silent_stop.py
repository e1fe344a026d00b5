"""Fates that wait for a locked row, a feed by sequence, alerts with counts. The release before can work with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NOW = sa.text("CURRENT_TIMESTAMP(6)")
MOMENT = mysql.DATETIME(fsp=6)
STATUS = sa.String(length=16)


def _id(length: int) -> mysql.VARCHAR:
    """Keys and ids compare byte by byte and without padding."""
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    _let_fates_wait()
    _number_fates()
    _find_units()
    _keep_due_order()
    _watch_the_promise()
    _remember_decisions()
    _know_clocks()
    _order_alerts()


def downgrade() -> None:
    for table in ("alert_closings", "machine_clocks"):
        op.drop_table(table, if_exists=True)
    op.drop_column("alerts", "sequence", if_exists=True)
    op.drop_column("alerts", "occurrences", if_exists=True)
    for table in ("late_emergencies", "applied_waits", "counted_fates"):
        op.drop_table(table, if_exists=True)
    _by_state("relayed_at", "priority_class")
    for index, table in (
        ("ix_scheduled_changes_entity", "scheduled_changes"),
        ("ix_units_name", "units"),
        ("ix_units_property", "units"),
        ("ix_outbox_events_feed", "outbox_events"),
        ("ix_outbox_events_status", "outbox_events"),
    ):
        op.drop_index(index, table, if_exists=True)
    for table in ("units", "entities"):
        op.alter_column(table, "sync_status", existing_type=STATUS, existing_nullable=False, server_default=None)
    op.drop_column("outbox_events", "fate_sequence", if_exists=True)
    for column in ("resolved_epoch", "resolve_mode", "losses_accepted_at", "banned_at", "fate_sequence"):
        op.drop_column("nonce_ledger", column, if_exists=True)
    op.drop_table("feed_horizon", if_exists=True)
    op.drop_table("pending_fates", if_exists=True)


def _let_fates_wait() -> None:
    op.create_table(
        "pending_fates",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("change_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entity_type", _id(64), nullable=False),
        sa.Column("entity_id", _id(128), nullable=False),
        sa.Column("outcome", STATUS, nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=True),
        sa.Column("superseded_by", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(length=1024), nullable=True),
        sa.Column("decided_at", MOMENT, server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "outcome IN ('APPLIED', 'SUPERSEDED', 'NO_OP', 'STALE', 'DEAD', 'DISCARDED', 'REFUSED')",
            name="ck_pending_fates_outcome",
        ),
        sa.PrimaryKeyConstraint("host", "change_id"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index(
        "ix_pending_fates_entity", "pending_fates", ["host", "entity_type", "entity_id"], if_not_exists=True
    )


def _order_alerts() -> None:
    """Only adds columns with defaults, so a worker of the release before goes on raising alerts."""
    for name, kind, default in (("occurrences", sa.Integer(), "1"), ("sequence", sa.BigInteger(), "0")):
        op.add_column(
            "alerts", sa.Column(name, kind, server_default=sa.text(default), nullable=False), if_not_exists=True
        )
    op.create_table(
        "alert_closings",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("dedupe_key", _id(128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("host", "dedupe_key"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_alert_closings_closed", "alert_closings", ["host", "closed_at"], if_not_exists=True)


def _number_fates() -> None:
    op.add_column(
        "nonce_ledger",
        sa.Column("fate_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        if_not_exists=True,
    )
    op.add_column("outbox_events", sa.Column("fate_sequence", sa.BigInteger(), nullable=True), if_not_exists=True)
    op.create_index(
        "ix_outbox_events_feed", "outbox_events", ["host", "fate_sequence", "processed_at", "id"], if_not_exists=True
    )
    op.create_table(
        "feed_horizon",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("pruned_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def _remember_decisions() -> None:
    for column in (
        sa.Column("banned_at", MOMENT, nullable=True),
        sa.Column("losses_accepted_at", MOMENT, nullable=True),
        sa.Column("resolve_mode", sa.String(length=8), nullable=True),
        sa.Column("resolved_epoch", sa.BigInteger(), nullable=True),
    ):
        op.add_column("nonce_ledger", column, if_not_exists=True)


def _know_clocks() -> None:
    op.create_table(
        "machine_clocks",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("machine", _id(64), nullable=False),
        sa.Column("began_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("host", "machine"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def _find_units() -> None:
    """Sync status is derived from the outbox; the stored one gets a default, so that who records leaves it out."""
    for table in ("units", "entities"):
        op.alter_column(
            table,
            "sync_status",
            existing_type=STATUS,
            existing_nullable=False,
            server_default=sa.text("'PENDING_SYNC'"),
        )
    op.create_index(
        "ix_outbox_events_status",
        "outbox_events",
        ["host", "outcome", "entity_type", "entity_id", "priority_class"],
        if_not_exists=True,
    )
    op.create_index("ix_units_property", "units", ["host", "property_id", "id"], if_not_exists=True)
    op.create_index("ix_units_name", "units", ["host", "name", "id"], if_not_exists=True)


def _keep_due_order() -> None:
    """Each entity's oldest scheduled change is found by an index, and locked by who records it."""
    op.create_index(
        "ix_scheduled_changes_entity",
        "scheduled_changes",
        ["host", "entity_type", "entity_id", "recorded_at", "cancelled_at", "not_before", "id"],
        if_not_exists=True,
    )


def _watch_the_promise() -> None:
    """Waiting emergencies are found by an index, late ones kept as incidents, and how long changes took as counts."""
    _by_state("priority_class", "relayed_at")
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
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_late_emergencies_started", "late_emergencies", ["host", "started_at"], if_not_exists=True)
    op.create_table(
        "applied_waits",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("priority_class", STATUS, nullable=False),
        sa.Column("upto_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.Column("total_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "priority_class", "upto_ms"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_table(
        "counted_fates",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def _by_state(third: str, fourth: str) -> None:
    """The same name in one step: relays of the release before name the index, and go on, a little slower."""
    op.execute(
        "ALTER TABLE outbox_events DROP INDEX IF EXISTS ix_outbox_events_unrelayed, "
        f"ADD INDEX ix_outbox_events_unrelayed (host, processed_at, {third}, {fourth}, id)"
    )
