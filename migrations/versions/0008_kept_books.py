"""How many changes have ended for good is kept. New columns only, for the release before to leave alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_COUNTS = ("applied", "superseded", "no_op", "stale", "discarded", "refused")


def upgrade() -> None:
    for name in ("booked_sequence", "resolved_epoch"):
        op.add_column("counted_fates", sa.Column(name, sa.BigInteger(), nullable=True), if_not_exists=True)
    for name in _COUNTS:
        column = sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        op.add_column("counted_fates", column, if_not_exists=True)


def downgrade() -> None:
    for name in ("booked_sequence", "resolved_epoch", *_COUNTS):
        op.drop_column("counted_fates", name, if_exists=True)
