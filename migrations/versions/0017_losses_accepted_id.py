"""Up to which id an operator gave up lost changes. One column; an older release leaves it as it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("losses_accepted_id", sa.BigInteger(), nullable=True)
    op.add_column("nonce_ledger", column, if_not_exists=True)


def downgrade() -> None:
    op.drop_column("nonce_ledger", "losses_accepted_id", if_exists=True)
