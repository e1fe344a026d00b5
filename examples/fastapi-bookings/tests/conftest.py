"""Loads the test kit."""

pytest_plugins = ["oldhost_sync.testing"]
