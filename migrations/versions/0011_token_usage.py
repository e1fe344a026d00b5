"""What each token used, minute by minute. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def _id(length: int) -> mysql.VARCHAR:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    op.create_table(
        "token_usage",
        sa.Column("host", _id(64), nullable=False),
        sa.Column("token_name", _id(64), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("minute", "requests", "changes", "emergencies", "refused")
        ),
        sa.PrimaryKeyConstraint("host", "token_name", "slot"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("token_usage", if_exists=True)
