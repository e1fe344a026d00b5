"""The place of `record_change` until 0.1: import it from `oldhost_sync` instead. 0.3 removes this file."""

from __future__ import annotations

from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change

__all__ = ["RecordedChange", "record_change"]
