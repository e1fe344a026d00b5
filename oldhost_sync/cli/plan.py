"""`plan` simulates a scenario in virtual time; `demo` runs one on real servers in compressed time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from oldhost_sync.cli.output import AsJson, console, error_console, print_json, rows, span
from oldhost_sync.cli.replay import replay_recorded
from oldhost_sync.environment import in_database, settings
from oldhost_sync.planner import (
    Plan,
    PlannedState,
    Scenario,
    Tried,
    capacity,
    ceiling_per_s,
    live_arrivals,
    live_scenario,
    quantile,
    rehearse,
    steady,
)
from oldhost_sync.planner.scenario import MEANINGS
from oldhost_sync.planner.steady_load import STEPS
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.read.host_condition import LiveLoad, read_live_load
from oldhost_sync.user_errors import FAILED, WRONG, CliError

PICTURE_WIDTH = 96
PICTURE_HEIGHT = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_DEFAULT = Scenario()


def add_to(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(demo)


def _figure(name: str) -> Any:
    return typer.Option(help=f"{MEANINGS[name]}.")


def plan(
    context: typer.Context,
    units: Annotated[int, _figure("units")] = _DEFAULT.units,
    changes: Annotated[int, _figure("changes")] = _DEFAULT.changes,
    emergency_share: Annotated[float, _figure("emergency_share")] = _DEFAULT.emergency_share,
    txn_share: Annotated[float, _figure("txn_share")] = _DEFAULT.txn_share,
    duration_s: Annotated[float, _figure("duration_s")] = _DEFAULT.duration_s,
    bursts: Annotated[int, _figure("bursts")] = _DEFAULT.bursts,
    burst_changes: Annotated[int, _figure("burst_changes")] = _DEFAULT.burst_changes,
    burst_per_s: Annotated[float, _figure("burst_per_s")] = _DEFAULT.burst_per_s,
    ban_at_s: Annotated[float | None, _figure("ban_at_s")] = _DEFAULT.ban_at_s,
    ban_s: Annotated[float, _figure("ban_s")] = _DEFAULT.ban_s,
    latency_ms: Annotated[float, _figure("latency_ms")] = _DEFAULT.latency_ms,
    debounce_s: Annotated[float, _figure("debounce_s")] = _DEFAULT.debounce_s,
    max_wait_s: Annotated[float, _figure("max_wait_s")] = _DEFAULT.max_wait_s,
    txn_per_lww: Annotated[int, _figure("txn_per_lww")] = _DEFAULT.txn_per_lww,
    early_send_s: Annotated[float, _figure("early_send_s")] = _DEFAULT.early_send_s,
    emergency_promise_s: Annotated[float, _figure("emergency_promise_s")] = _DEFAULT.emergency_promise_s,
    consistency_promise_h: Annotated[float, _figure("consistency_promise_h")] = _DEFAULT.consistency_promise_h,
    seed: Annotated[int, _figure("seed")] = _DEFAULT.seed,
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Find the highest steady rate of this mix; takes some minutes.")
    ] = False,
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Start with the outstanding and scheduled changes in the database.")
    ] = False,
    rate: Annotated[
        float, typer.Option(min=0, help="With --from-now: how many new changes of this mix arrive per second.")
    ] = 0.0,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help="Rehearse what was recorded in that time, as it is set and with the settings given here. Days in UTC, "
            "or times with a zone: 2026-11-01..2026-11-08.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the writer's policy on a virtual clock, compared with an oracle that knows the future. Sends nothing."""
    given = {name: value for name, value in locals().items() if name != "context"}
    if replay is not None:
        replay_recorded(replay, _given_here(context), as_json=as_json)
        return
    scenario = Scenario(**{field.name: given[field.name] for field in fields(Scenario)})
    if capacity and from_now:
        raise CliError("--capacity and --from-now can't be combined.", WRONG)
    if capacity:
        find_capacity(scenario, as_json=as_json)
    elif from_now:
        _report_from_now(scenario, rate, as_json=as_json)
    else:
        _report(rehearse(scenario), as_json=as_json)


def _given_here(context: typer.Context) -> dict[str, Any]:
    """What the command line itself says, by name; the rest are defaults."""
    return {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }


def _report_from_now(scenario: Scenario, rate: float, *, as_json: bool) -> None:
    """Print what is outstanding now, and the plan from there."""
    found, live = plan_from_now(scenario, rate)
    if as_json:
        now = live_figures(live)
        print_json({"now": now}) if found is None else _report(found, as_json=True, more={"now": now})
        return
    console().print(rows("", ("now", "outstanding", "oldest", "older than 1 h", "scheduled"), live_lines(live)), Text())
    for note in live.notes():
        console().print(note, markup=False)
    if found is not None:
        _report(found, as_json=False)


def _report(found: Plan, *, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print it; exit code 1 when a promise breaks."""
    if as_json:
        print_json({**found.figures(), **(more or {}), "promises": dict(found.promises())})
    else:
        console().print(
            Group(rows("", ("figure", "value", "compared"), figure_lines(found)), Text(), picture(found.samples))
        )
    if not all(kept for _, kept in found.promises()):
        raise typer.Exit(FAILED)


def demo(
    factor: Annotated[float, typer.Option(min=1, max=100, help="The factor by which time is compressed.")] = 30.0,
    changes: Annotated[
        int,
        typer.Option(
            min=100, max=100_000, help="How many changes are submitted. Fewer take less time, at the same rate."
        ),
    ] = 10_000,
    units: Annotated[int, typer.Option(min=1, max=50_000, help="Units that change.")] = 2_500,
    seed: Annotated[int, typer.Option(help="Another seed gives another day.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running until Ctrl-C, to look around.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Keep data and logs there; by default in a temporary folder.")
    ] = None,
) -> None:
    """Run the half-hour peak, with a ban, on real servers in compressed time; exit code 1 when a promise breaks."""
    from oldhost_sync.demo.compression import peak
    from oldhost_sync.demo.run import DemoOptions, run_demo

    options = DemoOptions(compressed=peak(factor, changes=changes, units=units, seed=seed), keep=keep, folder=folder)
    raise typer.Exit(run_demo(options, console()))


def figure_lines(found: Plan) -> list[Sequence[object]]:
    by_class = found.by_class
    counts = ", ".join(f"{cls.value} {by_class[cls]:,}" for cls in PriorityClass)
    outside, overall = found.emergencies_outside_ban_ms, found.emergencies_ms
    promised = found.scenario.promises
    drained = span(found.drained_ms) if found.drained else f"not within {span(found.drained_ms)}"
    lines: list[Sequence[object]] = [
        ("changes", found.changes, counts if found.operations == found.changes else ""),
        (
            "operations",
            found.operations,
            f"{found.operations_ratio:.3f} × the oracle's {found.bounds.operations:,}  ({counts})",
        ),
        ("never sent (superseded)", found.superseded, ""),
        ("empty after", drained, f"{found.drained_ratio:.3f} × the oracle's {span(found.bounds.drained_ms)}"),
        ("oldest change when applied", span(found.oldest_ms), f"promise: {promised.consistency}"),
        ("longest backlog", found.backlog_max, "operations"),
        (
            "OldHost busy",
            f"{found.busy_share:.1%}",
            f"{found.busy_share_of_backlog:.1%} of the time in which something could be sent",
        ),
        (
            "EMERGENCY p50 / p99 / max",
            _quantiles(outside),
            f"promise: {promised.emergency}" + (", outside the ban" if overall != outside else ""),
        ),
    ]
    if overall != outside:
        lines.append(("  including the ban", _quantiles(overall), "none can reach OldHost during a ban"))
    lines.append(("late emergencies", found.late_emergencies, f"of {len(overall):,}; promise: {promised.emergency}"))
    if found.alerts:
        lines.append(
            ("alerts raised", sum(found.alerts.values()), ", ".join(f"{kind} {n}" for kind, n in found.alerts.items()))
        )
    return [
        *lines,
        _dirty_line(found),
        *((name, "kept" if kept else "BROKEN", "promise") for name, kept in found.promises()),
    ]


def _dirty_line(found: Plan) -> Sequence[object]:
    promised = found.scenario.promises
    operations = promised.consistency_ms / max(found.scenario.latency_ms, 0.1)
    return (
        f"all {found.scenario.units:,} units dirty at once",
        span(found.all_units_dirty_ms),
        f"in {promised.consistency} OldHost takes {operations:,.0f} operations",
    )


def _quantiles(values_ms: Sequence[int]) -> str:
    if not values_ms:
        return "–"
    return " / ".join(span(quantile(values_ms, part)) for part in (0.5, 0.99, 1.0))


# -------------------------------------------------------------------------------------------------------------- picture


def picture(samples: Sequence[PlannedState]) -> Group:
    """The backlog over time: what is ready to be sent, what the debounce holds back, and the ban."""
    if not samples:
        return Group()
    width = min(PICTURE_WIDTH, max(1, console().width - 10), len(samples))
    columns = [samples[index * len(samples) // width : (index + 1) * len(samples) // width] for index in range(width)]
    waiting = [max(sample.ready + sample.debounced for sample in column) for column in columns]
    ready = [max(sample.ready for sample in column) for column in columns]
    top = max([*waiting, 1])
    lines = [Text("waiting for OldHost (bright: ready to be sent, dim: held back by the debounce)")]
    for level in reversed(range(PICTURE_HEIGHT)):
        line = Text(f"{top if level == PICTURE_HEIGHT - 1 else '':>7} ", style="dim")
        for all_of_them, going in zip(waiting, ready, strict=True):
            is_ready = _height(going, top, level) > 0
            line.append(
                _EIGHTHS[_height(going if is_ready else all_of_them, top, level)], "cyan" if is_ready else "dim"
            )
        lines.append(line)
    banned = "".join("▀" if any(sample.banned for sample in column) else "─" for column in columns)
    lines.append(
        Text.assemble((f"{'ban':>7} ", "dim"), (banned, "red"))
        if "▀" in banned
        else Text(f"{'':>7} {banned}", style="dim")
    )
    end = span(samples[-1].at_ms)
    lines.append(Text(f"{'':>7} 0{end:>{max(1, width - 1)}}", style="dim"))
    return Group(*lines)


def _height(value: int, top: int, level: int) -> int:
    """How many eighths of the cell at `level` a column of this value fills."""
    return max(0, min(8, round(value / top * PICTURE_HEIGHT * 8) - level * 8))


# ------------------------------------------------------------------------------------------------------ plan --from-now

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
        begun = live_scenario(scenario, writer_policy(config.of_host(config.host)), changes, live.blocked_ms)
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


# ------------------------------------------------------------------------------------------------------ plan --capacity


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
        for rate in capacity(scenario):
            tried.append(rate)
            progress.update(task, advance=1, description=f"{rate.per_s:.2f} changes/s: {_verdict(rate)}")
    kept = max((rate.per_s for rate in tried if rate.kept), default=0.0)
    if as_json:
        print_json(
            {
                "changes_per_s": kept,
                "ceiling_per_s": ceiling_per_s(scenario),
                "tried": [_as_json(rate) for rate in tried],
            }
        )
        return
    lines = [
        (f"{rate.per_s:.2f}", _verdict(rate), *(span(rate.oldest_ms[cls]) for cls in PriorityClass))
        for rate in sorted(tried, key=lambda rate: rate.per_s)
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
