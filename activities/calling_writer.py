"""The writer that called an activity: its host is in its workflow's id, so that no argument repeats it."""

from __future__ import annotations

from temporalio import activity

from workflows.messages import host_of


def host() -> str:
    """Of the running activity. Raises ValueError if another workflow called it."""
    return host_of(activity.info().workflow_id or "")
