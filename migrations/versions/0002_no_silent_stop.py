"""Fates that wait for a locked row, a feed by sequence, alerts with counts. Only adds: the release before works with it."""

from __future__ import annotations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
