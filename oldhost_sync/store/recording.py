"""Where `record_change` was until 0.1: import it from `oldhost_sync`. This file goes with 0.3."""

from __future__ import annotations

from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change

__all__ = ["RecordedChange", "record_change"]
