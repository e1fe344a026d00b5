"""The days whose settlement file is written; and indexes that find what ended on a day. Only adds, while the product
goes on writing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

MOMENT = mysql.DATETIME(fsp=6)
INDEXES = {
    "nonce_requests": {"ix_nonce_requests_completed": "host, completed_at, nonce"},
    "nonce_requests_archive": {
        "ix_nonce_requests_archive_completed": "host, completed_at, nonce",
        "ix_nonce_requests_archive_archived": "host, archived_at, nonce",
    },
}


def upgrade() -> None:
    """One pass over each table; the server refuses rather than lock out writers."""
    op.create_table(
        "settled_days",
        sa.Column("host", mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_nopad_bin"), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("sha256", mysql.BINARY(32), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", MOMENT, server_default=sa.text("CURRENT_TIMESTAMP(6)"), nullable=False),
        sa.Column("released_at", MOMENT),
        sa.PrimaryKeyConstraint("host", "day"),
        if_not_exists=True,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
    for table, indexes in INDEXES.items():
        added = ", ".join(f"ADD INDEX IF NOT EXISTS {name} ({columns})" for name, columns in indexes.items())
        op.execute(f"ALTER TABLE {table} {added}, ALGORITHM=INPLACE, LOCK=NONE")


def downgrade() -> None:
    for table, indexes in INDEXES.items():
        op.execute(f"ALTER TABLE {table} " + ", ".join(f"DROP INDEX IF EXISTS {name}" for name in indexes))
    op.drop_table("settled_days", if_exists=True)
