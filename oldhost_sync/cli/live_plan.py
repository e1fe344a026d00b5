"""`plan --from-now`: when OldHost will have all outstanding changes, and which promises are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn

from oldhost_sync.cli.output import error_console, span
from oldhost_sync.environment import in_database, settings
from oldhost_sync.planner import Plan, Scenario, live_arrivals, live_scenario, rehearse, steady
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.read.live_load import LiveLoad, read_live_load

HOUR_MS = 3_600_000


def plan_from_now(scenario: Scenario, rate: float) -> tuple[Plan | None, LiveLoad]:
    """Simulate the outstanding and scheduled changes, and `rate` new changes a second of the scenario's mix for its
    duration, with the debounce and turns of the settings. The plan is None when there is nothing to simulate.
    """
    from oldhost_sync.temporal.client import writer_policy

    config = settings()
    out = error_console()
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=out, disable=not out.is_terminal) as shown:
        task = shown.add_task("reading outstanding changes")
        live = in_database(config, lambda connection: read_live_load(connection, config.host))
        shown.update(task, description=f"simulating {len(live.outstanding) + len(live.scheduled):,} changes")
        new = steady(scenario, rate, scenario.duration_s) if rate else []
        changes = live_arrivals(live.outstanding, live.scheduled, live.now_ms, new)
        if not changes:
            return None, live
        begun = live_scenario(scenario, writer_policy(config), changes, live.ban_left_ms)
        return rehearse(begun, changes=changes), live


def live_figures(live: LiveLoad) -> dict[str, Any]:
    """What the plan starts with, as JSON."""
    names = ("outstanding", "oldest", "older_than_1_h", "scheduled")
    classes = {str(line[0]): dict(zip(names, line[1:], strict=True)) for line in live_lines(live)}
    return {"by_class": classes, "stopped": live.stopped, "ban_left_ms": live.ban_left_ms, "cut": live.cut}


def live_lines(live: LiveLoad) -> list[Sequence[object]]:
    """What the plan starts with, by class and age."""
    return [
        (
            cls.value,
            len(ages_ms := [live.now_ms - ref.accepted_at_ms for ref in live.outstanding if ref.priority_class is cls]),
            span(max(ages_ms)) if ages_ms else "–",
            sum(age_ms > HOUR_MS for age_ms in ages_ms),
            sum(ref.priority_class is cls for ref in live.scheduled),
        )
        for cls in PriorityClass
    ]
