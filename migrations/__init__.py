"""The schema's history, run by `oldhost-sync migrate`. The tables as they are now: oldhost_sync/store/tables.py."""
