"""The rights of each database account; docs/operations.md and docker-compose.yml have the same."""

from __future__ import annotations

APP_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
MIGRATION_RIGHTS = f"{APP_RIGHTS}, CREATE, ALTER, DROP, INDEX, REFERENCES"
