"""Who is signed in to the console, and links that sign in once. New tables only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NOW = sa.text("CURRENT_TIMESTAMP(6)")
MOMENT = mysql.DATETIME(fsp=6)
TABLES = ("console_sessions", "sign_in_links")


def upgrade() -> None:
    for name in TABLES:
        op.create_table(
            name,
            sa.Column("host", mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin"), nullable=False),
            sa.Column("digest", mysql.BINARY(32), nullable=False),
            sa.Column("token_name", sa.String(length=64), nullable=False),
            sa.Column("token_fingerprint", mysql.BINARY(32), nullable=False),
            sa.Column("created_at", MOMENT, server_default=NOW, nullable=False),
            sa.Column("expires_at", MOMENT, nullable=False),
            sa.PrimaryKeyConstraint("host", "digest"),
            if_not_exists=True,
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
        op.create_index(f"ix_{name}_expires", name, ["host", "expires_at"], if_not_exists=True)


def downgrade() -> None:
    for name in TABLES:
        op.drop_table(name, if_exists=True)
