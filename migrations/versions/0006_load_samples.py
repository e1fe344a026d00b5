"""How the load went: three rings of samples for each host. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "load_samples",
        sa.Column("host", mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin"), nullable=False),
        sa.Column("step_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", mysql.DATETIME(fsp=6), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("emergency", "txn", "lww", "accepted", "applied")),
        sa.Column("emergency_ms", sa.BigInteger(), nullable=False),
        sa.Column("stopped", sa.String(length=16), nullable=True),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", "step_s", "slot"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("load_samples", if_exists=True)
