"""`plan --replay`: what was recorded in a time, as it went, as it is set now, and with other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from functools import partial
from typing import Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from oldhost_sync.cli.output import console, error_console, print_json, rows, span
from oldhost_sync.environment import database, settings
from oldhost_sync.fields.scalar import InvalidField, read_day, read_moment
from oldhost_sync.planner import (
    REPLAYED_CHANGES_MAX,
    Arrival,
    Plan,
    Scenario,
    quantile,
    rehearse,
    replayed_arrivals,
    replayed_scenario,
)
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.settings import Settings
from oldhost_sync.store.read.host_condition import usual_service_ms
from oldhost_sync.store.read.recorded_time import RecordedTime, id_range, pages, read_page
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.client import writer_policy
from oldhost_sync.user_errors import FAILED, WRONG, CliError

# What a replay can change, by the options' names.
REPLACEABLE = frozenset(
    {"ban_at_s", "ban_s", "latency_ms", "debounce_s", "max_wait_s", "txn_per_lww", "early_send_s"}
    | {"emergency_promise_s", "consistency_promise_h"}
)


def replay_recorded(span_of_time: str, given: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what other settings would have changed. Exit code 1 when a promise breaks with them."""
    other = {name: value for name, value in given.items() if name in REPLACEABLE}
    if unfit := sorted(set(given) - REPLACEABLE - {"replay", "as_json"}):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in unfit)
        raise CliError(f"--replay takes its changes from the database, so it can't be combined with {options}.", WRONG)
    begin_at, end_at = _time(span_of_time)
    config = settings()
    out = error_console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        recorded, service_ms = _read(config, begin_at, end_at, progress)
        if not recorded.changes:
            raise CliError(f"{config.host} has no change that was recorded then and still is in the database.")
        changes = replayed_arrivals(recorded.changes, round(begin_at.timestamp() * 1000))
        usual = partial(replayed_scenario, writer_policy(config.of_host(config.host)), service_ms, changes)
        scenarios = {"as set": usual({}), **({"with these settings": usual(other)} if other else {})}
        plans = {name: _rehearsed(name, each, changes, progress) for name, each in scenarios.items()}
    if as_json:
        print_json(_as_json(recorded, plans))
    else:
        _print(recorded, plans, service_ms)
    if not all(kept for _, kept in list(plans.values())[-1].promises()):
        raise typer.Exit(FAILED)


def _time(text: str) -> tuple[datetime, datetime]:
    """`FROM..TO`, without TO itself. CliError says what is wrong."""
    first, dots, last = text.partition("..")
    try:
        begin_at, end_at = _moment(first), _moment(last)
    except InvalidField as error:
        raise CliError(f"{error}; give both: --replay 2026-11-01..2026-11-08.", WRONG) from None
    if not dots or begin_at >= end_at:
        raise CliError(f"--replay {text} ends before it begins.", WRONG)
    return begin_at, end_at


def _moment(text: str) -> datetime:
    """A day's begin in UTC, or a time with its zone."""
    if "T" in text or " " in text:
        return read_moment("--replay", text)
    return datetime.combine(read_day("--replay", text), time(), UTC)


def _read(config: Settings, begin_at: datetime, end_at: datetime, progress: Progress) -> tuple[RecordedTime, float]:
    """What was recorded, and OldHost's usual time for an operation in ms (a plan's own, while none is known)."""
    recorded = RecordedTime()
    with database(config) as engine:
        run = partial(run_in_transaction, engine)
        ids = run(lambda connection: id_range(connection, begin_at, end_at))
        task = progress.add_task("reading what was recorded", total=len(ids))
        for page in pages(ids):
            run(partial(read_page, host=config.host, ids=page, begin_at=begin_at, end_at=end_at, into=recorded))
            progress.update(task, advance=len(page))
            if len(recorded.changes) > REPLAYED_CHANGES_MAX:
                until = datetime.fromtimestamp(recorded.changes[-1].accepted_at_ms // 1000, UTC)
                many = f"more than {REPLAYED_CHANGES_MAX:,} changes were recorded"
                raise CliError(f"{many}; end the time at {until:%Y-%m-%dT%H:%M:%SZ}.")
        service_ms = run(lambda connection: usual_service_ms(connection, config.host))
    return recorded, Scenario().latency_ms if service_ms is None else round(service_ms, 1)


def _rehearsed(name: str, scenario: Scenario, changes: Sequence[Arrival], progress: Progress) -> Plan:
    task = progress.add_task(f"rehearsing it {name}", total=len(changes))
    return rehearse(scenario, changes=changes, progress=lambda arrived: progress.update(task, completed=arrived))


def _print(recorded: RecordedTime, plans: Mapping[str, Plan], service_ms: float) -> None:
    out = console()
    out.print(rows("", ("figure", "as it went", *plans), _lines(recorded, list(plans.values()))))
    notes = [f"OldHost's time for an operation is {service_ms:g} ms where no other is given."]
    notes.append("Rehearsed without the bans, pauses and outages of that time, and with nothing waiting at its start.")
    if recorded.left_out:
        notes.append(f"Left out: {recorded.left_out:,} changes without a need to send them (no-op, stale, discarded).")
    if recorded.waiting:
        notes.append(f"{recorded.waiting:,} of the changes have no fate yet.")
    for note in notes:
        out.print(note, markup=False, highlight=False)


def _lines(recorded: RecordedTime, plans: Sequence[Plan]) -> list[Sequence[object]]:
    promised = plans[-1].scenario.promises
    late = sum(took_ms > promised.emergency_ms for took_ms in recorded.emergencies_ms)
    operations = sum(recorded.operations.values())
    lines: list[Sequence[object]] = [
        ("changes", len(recorded.changes), *(plan.changes for plan in plans)),
        ("operations", operations, *(_beside(plan.operations, plans[0].operations) for plan in plans)),
        *(
            (f"  {cls.value}", recorded.operations[cls], *(plan.by_class[cls] for plan in plans))
            for cls in PriorityClass
        ),
        ("OldHost's time for them", "", *(span(round(plan.busy_ms)) for plan in plans)),
        ("oldest change when applied", span(recorded.oldest_ms), *(span(plan.oldest_ms) for plan in plans)),
        (
            "EMERGENCY p50 / p99 / max",
            _quantiles(recorded.emergencies_ms),
            *(_quantiles(plan.emergencies_ms) for plan in plans),
        ),
        ("late emergencies", late, *(plan.late_emergencies for plan in plans)),
        ("longest backlog", "", *(plan.backlog_max for plan in plans)),
    ]
    kept = [dict(plan.promises()) for plan in plans]
    for names in zip(*kept, strict=True):
        verdicts = ("kept" if each[name] else "BROKEN" for each, name in zip(kept, names, strict=True))
        lines.append((names[-1], "", *verdicts))
    return lines


def _beside(value: int, usual: int) -> str:
    """A count, and by how much it differs from what it would be as set."""
    return f"{value:,}" if value == usual else f"{value:,} ({(value - usual) / max(usual, 1):+.1%})"


def _quantiles(values_ms: Sequence[int]) -> str:
    if not values_ms:
        return "–"
    return " / ".join(span(quantile(values_ms, part)) for part in (0.5, 0.99, 1.0))


def _as_json(recorded: RecordedTime, plans: Mapping[str, Plan]) -> dict[str, Any]:
    took = recorded.emergencies_ms
    went = {
        "changes": len(recorded.changes),
        "left_out": recorded.left_out,
        "waiting": recorded.waiting,
        "operations": sum(recorded.operations.values()),
        "operations_by_class": {cls.value: count for cls, count in recorded.operations.items()},
        "oldest_age_s": recorded.oldest_ms / 1000,
        "emergency_s": {
            name: None if not took else (quantile(took, part) or 0) / 1000
            for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        },
    }
    planned = {
        name.replace(" ", "_"): {**plan.figures(), "promises": dict(plan.promises())} for name, plan in plans.items()
    }
    return {"as_it_went": went, **planned}
