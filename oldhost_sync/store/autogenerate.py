"""What an application's Alembic needs to know where it shares a schema with our tables."""

from __future__ import annotations

from oldhost_sync.store.tables import metadata

# Where Alembic keeps our schema's revision: the application has its own `alembic_version`.
REVISION_TABLE = "oldhost_sync_revision"


def include_object(_object: object, name: str | None, kind: str, _reflected: bool, _compare_to: object) -> bool:
    """For `include_object` of Alembic's `context.configure`, in an application that shares our tables' schema: its
    autogenerate leaves them alone.
    """
    return not (kind == "table" and (name in metadata.tables or name == REVISION_TABLE))
