"""The verdict: facts in, a table of findings out (measured, promised, kept or not). Pure."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oldhost_sync.demo.applications import PER_SECOND, Burst, Receipts
from oldhost_sync.demo.compression import Compressed
from oldhost_sync.demo.facts import Change, Facts
from oldhost_sync.planner import Plan, quantile
from oldhost_sync.policy.tuning import EMERGENCY_MS

# The promise to applications: 99 of 100 writes are answered within it.
ANSWER_MS = 200
# The target for the peak scenario.
OPERATIONS_RATIO_MAX = 1.02
# A short run has few operations: this allowance keeps chance from deciding the verdict.
OPERATIONS_SPARE = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the verdict. `holds` None: for information only."""

    what: str
    measured: str
    promised: str = ""
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What happened when, in seconds since 1970. `ban`: its start and end at OldHost. `planned`: what the planner makes
    of the changes at the times at which they were accepted.

    `load`: the machine's load average, and its cores. `burst`: the load at real speed, after all that.
    """

    compressed: Compressed
    started_at: float
    ban: tuple[float, float]
    planned: Plan
    receipts: Receipts
    facts: Facts
    load: tuple[float, int] | None = None
    burst: Burst = field(default_factory=Burst)


def verdict(run: Run) -> list[Finding]:
    """All findings, the most important first."""
    return [*_at_once(run), *_changes(run), *_oldhost(run), *_emergencies(run), *_ends(run), *_machine(run)]


def failed(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.holds is False]


def lost(run: Run) -> list[str]:
    """Compare receipts with the outbox: keys that were accepted, but are not in the outbox exactly once."""
    stored = Counter(change.key for change in run.facts.changes)
    given = [key for keys in run.receipts.accepted.values() for key in keys]
    return [key for key in given if stored[key] != 1]


# -------------------------------------------------------------------------------------------------------------- at once


def _at_once(run: Run) -> Iterator[Finding]:
    """The first promise, in real time. Judged from when the generator came to a change; its own delay is shown."""
    burst = run.burst
    what = f"API at {PER_SECOND}/s in real time"
    p99 = quantile([1000 * each for each in burst.took], 0.99)
    if p99 is None:
        yield Finding(what, "nothing was submitted", f"p99 < {ANSWER_MS} ms", holds=False)
        return
    count = len(burst.took)
    promised = f"p50 / p99 / max of {count:,} in {burst.lasted:.0f} s; p99 < {ANSWER_MS} ms, none refused"
    refused = f", {len(burst.failed)} refused" if burst.failed else ""
    yield Finding(what, _in_ms(burst.took) + refused, promised, p99 < ANSWER_MS and not burst.failed)
    yield Finding("  the generator's own delay", _in_ms(burst.late), "on the same cores; not counted above")


def _in_ms(seconds: Sequence[float]) -> str:
    values = [1000 * each for each in seconds]
    return " / ".join(f"{quantile(values, part) or 0:.0f} ms" for part in (0.5, 0.99, 1.0))


# -------------------------------------------------------------------------------------------------------------- changes


def _changes(run: Run) -> Iterator[Finding]:
    books, receipts, wanted = run.facts.books, run.receipts, run.compressed.real.changes
    ways = ", ".join(f"{len(keys):,} by {way}" for way, keys in receipts.accepted.items())
    yield Finding("changes submitted", f"{receipts.count:,} of {wanted:,}", ways, receipts.count == wanted)
    yield _lost(run)
    for name in ("applied", "superseded", "no_op", "stale", "dead"):
        value = getattr(books, name)
        yield Finding(
            f"  {name.replace('_', '-')}",
            f"{value:,}",
            "none" if name == "dead" else "",
            value == 0 if name == "dead" else None,
        )
    left = books.waiting + books.in_flight
    complete = books.balance and left == 0 and books.accepted == wanted
    yield Finding("every change has its fate", f"{left} without one", "the books balance", complete)
    if receipts.seconds:
        about = f"p50 / p99 / max of {run.compressed.factor:g} times the work; {receipts.repeated} repeated"
        yield Finding("API in compressed time: due → answered", _in_ms(receipts.seconds), about)


def _lost(run: Run) -> Finding:
    missing = lost(run)
    return Finding("accepted and lost", f"{len(missing)}{_some(missing)}", "none", not missing)


# -------------------------------------------------------------------------------------------------------------- oldhost


def _oldhost(run: Run) -> Iterator[Finding]:
    stats, planned = run.facts.stats, run.planned
    operations, fewest = len(run.facts.journal), planned.bounds.operations
    # Changes that came late, on a busy machine, can't all be merged: then the planner's figure is the measure.
    most = max(int(fewest * OPERATIONS_RATIO_MAX), max(fewest, planned.operations) + OPERATIONS_SPARE)
    bounds = (
        f"{operations / fewest:.3f} × the oracle's {fewest:,}, at most {most:,}; "
        f"the planner says {planned.operations:,} for these times"
    )
    yield Finding("operations sent", f"{operations:,}", bounds, operations <= most)
    for name in ("gaps", "replays"):
        yield Finding(name, str(stats[name]), "0", stats[name] == 0)
    yield Finding("bans", str(stats["bans"]), "1, the planned one", stats["bans"] == 1)
    drained_s = max((change.processed_at or 0.0 for change in run.facts.changes), default=0.0) - run.started_at
    drained = (
        f"{planned.bounds.drained_ms / 1000:.1f} s by the oracle, {planned.drained_ms / 1000:.1f} s by the planner"
    )
    yield Finding("everything applied after", f"{drained_s:.1f} s ({_real(run, drained_s)})", drained)
    yield Finding("once each, and in order per entity", *_order(run))


def _order(run: Run) -> tuple[str, str, bool]:
    """I2 and I4, read from OldHost's own journal."""
    applied = [entry["body"] for entry in run.facts.journal if entry["outcome"] == "applied"]
    times = Counter(body["idempotency_key"] for body in applied)
    doubled = [key for key, count in times.items() if count > 1]
    must = [change.key for change in run.facts.changes if change.priority_class != "LWW"]
    missing = [key for key in must if times[key] != 1]
    last: dict[tuple[str, str], int] = {}
    swapped = []
    for body in applied:
        entity, change_id = (body["entity_type"], body["entity_id"]), int(body["event_id"])
        if change_id < last.get(entity, 0):
            swapped.append(body["idempotency_key"])
        last[entity] = max(change_id, last.get(entity, 0))
    shown = f"{len(missing)} EMERGENCY/TXN missing, {len(doubled)} sent twice, {len(swapped)} out of order"
    return shown, "0, 0, 0 in OldHost's journal", not (missing or doubled or swapped)


# ---------------------------------------------------------------------------------------------------------- emergencies


def _emergencies(run: Run) -> Iterator[Finding]:
    emergencies = [change for change in run.facts.changes if change.priority_class == "EMERGENCY"]
    outside = [change for change in emergencies if not _touched(change, run.ban)]
    yield _emergency("EMERGENCY outside the ban", run, outside, judged=True)
    yield _expected(run, outside)
    yield _emergency("EMERGENCY, all", run, emergencies, judged=False)
    waited = len(emergencies) - len(outside)
    answers = ", ".join(f"{count} {status}" for status, count in sorted(run.receipts.apply_now.items()))
    yield Finding("  delayed by the ban", str(waited), "none can reach OldHost during a ban; alerted at once")
    yield Finding("  answers of apply_now", answers or "–", "the nonce, or not applied yet")


def _emergency(what: str, run: Run, changes: Sequence[Change], *, judged: bool) -> Finding:
    seconds = [change.processed_at - change.accepted_at for change in changes if change.processed_at is not None]
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    if p50 is None or p99 is None:
        return Finding(what, "none arrived", "")
    shown = f"p50 {p50:.2f} s, p99 {p99:.2f} s  (real scale: {_real(run, p50)}, {_real(run, p99)})"
    promise_s = run.compressed.emergency_ms / 1000
    promised = f"p99 < {promise_s:.2f} s  (real scale: {EMERGENCY_MS // 1000} s)"
    return Finding(
        what, shown, promised if judged else "p50 and p99, the ban included", p99 < promise_s if judged else None
    )


def _expected(run: Run, changes: Sequence[Change]) -> Finding:
    """In real time only OldHost is slower: its share of the wait counts `factor` times, everything else once."""
    applied_at = sorted(entry["applied_at"] for entry in run.facts.journal if entry.get("applied_at") is not None)
    latency_s = run.compressed.played.latency_ms / 1000
    seconds = []
    for change in changes:
        if change.processed_at is not None:
            served = bisect(applied_at, change.processed_at) - bisect(applied_at, change.accepted_at)
            waited_s = change.processed_at - change.accepted_at
            hosts_s = min(waited_s, served * latency_s)
            seconds.append(waited_s - hosts_s + hosts_s * run.compressed.factor)
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    shown = "–" if p50 is None or p99 is None else f"p50 {p50:.0f} s, p99 {p99:.0f} s"
    return Finding("  only OldHost's share × factor", shown, "estimate for real time: our own delays count once")


def _touched(change: Change, ban: tuple[float, float]) -> bool:
    """Whether it was waiting at some moment of the ban."""
    return change.accepted_at < ban[1] and (change.processed_at is None or change.processed_at > ban[0])


# -------------------------------------------------------------------------------------------------------------- the end


def _ends(run: Run) -> Iterator[Finding]:
    shadow, records = run.facts.shadow, run.facts.records
    differing = [
        record for record in sorted(shadow.keys() | records.keys()) if shadow.get(record) != records.get(record)
    ]
    shown = f"{len(differing)} of {len(shadow):,} differ{_some(['/'.join(record) for record in differing])}"
    yield Finding("OldHost's records = shadow state", shown, "equal", not differing and bool(shadow))
    unsynced = run.facts.unsynced
    yield Finding("every entity is SYNCED", f"{len(unsynced)} are not{_some(unsynced)}", "all", not unsynced)


def _machine(run: Run) -> Iterator[Finding]:
    if run.load is not None:
        load, cores = run.load
        about = (
            f"busy with other work: our own delays count {run.compressed.factor:g} times here"
            if load > 2 * cores
            else ""
        )
        yield Finding("this machine", f"load {load:.1f} on {cores} cores", about)


def _real(run: Run, seconds: float) -> str:
    real_s = seconds * run.compressed.factor
    return f"{real_s:.0f} s" if real_s < 600 else f"{real_s / 60:.0f} min"


def _some(names: Sequence[str]) -> str:
    return f" ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if names else ""
