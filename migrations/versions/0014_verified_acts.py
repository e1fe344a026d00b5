"""By which channel an act came, and whether the name was verified. Two columns that may be empty: older rows stay."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_ADDED = (("channel", sa.String(16)), ("verified", sa.Boolean()))


def upgrade() -> None:
    for name, kind in _ADDED:
        op.add_column("operator_audit", sa.Column(name, kind, nullable=True), if_not_exists=True)


def downgrade() -> None:
    for name, _ in _ADDED:
        op.drop_column("operator_audit", name, if_exists=True)
