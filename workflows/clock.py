"""The writer's clock: the workflow's own time, the same in every replay."""

from __future__ import annotations

from temporalio import workflow


def now_ms() -> int:
    """Epoch milliseconds; they move only between workflow tasks."""
    return workflow.time_ns() // 1_000_000
