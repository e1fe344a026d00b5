"""States that are sent to OldHost again. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

MOMENT = mysql.DATETIME(fsp=6)


def _id(length: int) -> mysql.VARCHAR:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    op.create_table(
        "resyncs",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=True),
        sa.Column("host", _id(64), nullable=False),
        sa.Column("property_id", _id(128)),
        sa.Column("unit_id", _id(128)),
        sa.Column("operator", sa.String(128), nullable=False),
        sa.Column("reason", sa.String(1024), nullable=False),
        sa.Column("created_at", MOMENT, server_default=sa.text("CURRENT_TIMESTAMP(6)"), nullable=False),
        sa.Column("finished_at", MOMENT),
        sa.Column("after_type", _id(64), nullable=False),
        sa.Column("after_id", _id(128), nullable=False),
        sa.Column("recorded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("first_change_id", sa.BigInteger()),
        sa.Column("last_change_id", sa.BigInteger()),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    op.create_index("ix_resyncs_finished", "resyncs", ["host", "finished_at", "id"], if_not_exists=True)


def downgrade() -> None:
    op.drop_table("resyncs", if_exists=True)
