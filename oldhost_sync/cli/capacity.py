"""`plan --capacity`: tries rates of one mix of changes, one after the other, on a virtual clock."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from oldhost_sync.cli.output import console, error_console, print_json, rows, span
from oldhost_sync.planner import Scenario, Tried, capacity, ceiling_per_s
from oldhost_sync.planner.steady_load import STEPS
from oldhost_sync.policy.changes import PriorityClass


def find_capacity(scenario: Scenario, *, as_json: bool) -> None:
    """Try rates between zero and the ceiling, and report the highest that can be sustained."""
    tried: list[Tried] = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("trying rates", total=STEPS)
        for one in capacity(scenario):
            tried.append(one)
            progress.update(task, advance=1, description=f"{one.per_s:.2f} changes/s: {_verdict(one)}")
    kept = max((one.per_s for one in tried if one.kept), default=0.0)
    if as_json:
        print_json(
            {"changes_per_s": kept, "ceiling_per_s": ceiling_per_s(scenario), "tried": [_as_json(one) for one in tried]}
        )
        return
    lines = [
        (f"{one.per_s:.2f}", _verdict(one), *(span(one.oldest_ms[cls]) for cls in PriorityClass))
        for one in sorted(tried, key=lambda one: one.per_s)
    ]
    console().print(rows("", ("changes/s", "promises", *(f"oldest {cls.value}" for cls in PriorityClass)), lines))
    console().print(
        f"Every promise is kept at up to {kept:.2f} changes/s of this mix, for any length of time. At "
        f"{ceiling_per_s(scenario):.2f} changes/s, EMERGENCY and TXN alone take all of OldHost's time. Each rate "
        "started with a backlog of three hours; the ages are from the last two of six hours.",
        markup=False,
    )


def _verdict(one: Tried) -> str:
    return "kept" if one.kept else "BROKEN" if one.breaks else "falls behind"


def _as_json(one: Tried) -> dict[str, Any]:
    oldest_s = {cls.value: age_ms / 1000 for cls, age_ms in one.oldest_ms.items()}
    return {"changes_per_s": one.per_s, "kept": one.kept, "falls_behind": one.grows, "oldest_s": oldest_s}
