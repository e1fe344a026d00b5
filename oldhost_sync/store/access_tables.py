"""The tables that record who acted. See `tables.py` for the rules."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, String
from sqlalchemy.dialects import mysql

from oldhost_sync.policy import limits
from oldhost_sync.store.columns import UtcDateTime, by_host, of_host, stamp, table

operator_audit = table(
    "operator_audit",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("action", String(32), nullable=False),
    Column("operator", String(limits.OPERATOR_LENGTH_MAX), nullable=False),
    Column("reason", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Column("change_id", BigInteger),
    Column("detail", JSON),
    stamp("created_at"),
    # The channel of the act, and whether its name was verified (NULL: no person's name).
    Column("channel", String(16), nullable=False),
    Column("verified", Boolean),
    Index("ix_operator_audit_created", "host", "created_at"),
    Index("ix_operator_audit_change", "host", "change_id"),
    Index("ix_operator_audit_action", "host", "action", "id"),
)

# When each API token was last used; `fingerprint`: of the token (settings.ApiToken).
token_uses = table(
    "token_uses",
    by_host(),
    Column("fingerprint", mysql.BINARY(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("last_used_at", UtcDateTime, nullable=False),
)
