"""When each API token was last used. A new table only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

HOST = mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin")


def upgrade() -> None:
    op.create_table(
        "token_uses",
        sa.Column("host", HOST, nullable=False),
        sa.Column("fingerprint", mysql.BINARY(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("last_used_at", mysql.DATETIME(fsp=6), nullable=False),
        sa.PrimaryKeyConstraint("host", "fingerprint"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    op.drop_table("token_uses", if_exists=True)
