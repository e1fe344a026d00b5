"""What workers tell of their sessions with OldHost. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

MOMENT = mysql.DATETIME(fsp=6)


def upgrade() -> None:
    op.create_table(
        "host_sessions",
        sa.Column("host", mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("opened_at_nonce", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("ended_because", sa.String(length=1024)),
        sa.Column("lost_replies", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("host", "epoch"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("host_sessions", if_exists=True)
