"""Which workers are at work. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

MOMENT = mysql.DATETIME(fsp=6)
NOW = sa.text("CURRENT_TIMESTAMP(6)")


def _id(length: int) -> mysql.VARCHAR:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("name", _id(255), nullable=False),
        sa.Column("began_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("seen_at", MOMENT, server_default=NOW, nullable=False),
        sa.Column("left_at", MOMENT),
        sa.PrimaryKeyConstraint("host", "name"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("workers", if_exists=True)
