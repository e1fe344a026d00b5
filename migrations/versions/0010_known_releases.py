"""Which release of the writer's decisions each worker knows. A new column only, NULL for older workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("knows_release", sa.SmallInteger(), nullable=True), if_not_exists=True)


def downgrade() -> None:
    op.drop_column("workers", "knows_release", if_exists=True)
