"""The test kit's fixture, as an application's conftest loads it."""

from oldhost_sync.testing import oldhost_sync_recorder as recorder

__all__ = ["recorder"]
