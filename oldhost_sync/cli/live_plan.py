"""`plan --from-now`: when what is outstanding now will be at OldHost, and which promises hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn

from oldhost_sync.cli.output import error_console, span
from oldhost_sync.environment import in_database, settings
from oldhost_sync.planner import Plan, Scenario, live_arrivals, rehearse, steady
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.settings import Settings
from oldhost_sync.store.views.live_load import LiveLoad, read_live_load

HOUR_MS = 3_600_000


def plan_from_now(scenario: Scenario, rate: float) -> tuple[Plan | None, LiveLoad]:
    """Play what is outstanding and scheduled, and `rate` changes a second of the scenario's mix for its duration, by
    the settings' debounce and turns. None: there is nothing to play.
    """
    config = settings()
    out = error_console()
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=out, disable=not out.is_terminal) as shown:
        task = shown.add_task("reading what is outstanding")
        live = in_database(config, lambda connection: read_live_load(connection, config.host))
        shown.update(task, description=f"playing {len(live.outstanding) + len(live.scheduled):,} changes")
        new = steady(scenario, rate, scenario.duration_s) if rate else []
        changes = live_arrivals(live.outstanding, live.scheduled, live.now_ms, new)
        if not changes:
            return None, live
        return rehearse(_as_set(scenario, config, live, changes[-1].at_ms), changes=changes), live


def _as_set(scenario: Scenario, config: Settings, live: LiveLoad, last_ms: int) -> Scenario:
    ban = {"ban_at_s": 0.0, "ban_s": live.ban_left_ms / 1000} if live.ban_left_ms else {"ban_at_s": None}
    return replace(
        scenario,
        bursts=0,
        duration_s=max(scenario.duration_s, last_ms / 1000),
        debounce_s=config.debounce_seconds,
        max_wait_s=config.max_wait_seconds,
        txn_per_lww=config.txn_per_lww,
        early_send_s=config.early_send_seconds or 0.0,
        **ban,
    )


def notes(live: LiveLoad) -> list[str]:
    """What the plan does not know or can't help."""
    found = []
    if live.stopped:
        found.append(f"The writer sends nothing now: {live.stopped}. The plan begins when it goes on.")
    if live.ban_left_ms:
        found.append(f"OldHost has banned us for {span(live.ban_left_ms)} more.")
    if live.dead_letters:
        found.append(
            f"{live.dead_letters} dead letters, and what is held behind them, wait for an operator; not planned."
        )
    if live.cut:
        found.append(f"There is more; the oldest {len(live.outstanding):,} are planned.")
    if not live.outstanding and not live.scheduled:
        found.append("Nothing is outstanding, and nothing is scheduled.")
    return found


def live_figures(live: LiveLoad) -> dict[str, Any]:
    """The same for programs."""
    names = ("outstanding", "oldest", "older_than_1_h", "scheduled")
    classes = {str(line[0]): dict(zip(names, line[1:], strict=True)) for line in live_lines(live)}
    return {"by_class": classes, "stopped": live.stopped, "ban_left_ms": live.ban_left_ms, "cut": live.cut}


def live_lines(live: LiveLoad) -> list[Sequence[object]]:
    """What the plan begins with, by class and age."""
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
