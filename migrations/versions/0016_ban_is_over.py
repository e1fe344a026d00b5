"""Whether OldHost has agreed with the ledger since the last ban. One column; an older release leaves it as it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("ban_is_over", sa.Boolean(), nullable=False, server_default=sa.text("0"))
    op.add_column("nonce_ledger", column, if_not_exists=True)


def downgrade() -> None:
    op.drop_column("nonce_ledger", "ban_is_over", if_exists=True)
