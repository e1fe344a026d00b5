"""Level L2: every call of the scenario fails in every mode, once and for good; on the ambiguous path, every pair; and
at every call the writer's run is lost (`rebuilds`).

A pair is two calls of the workers: the API and the relays have no part in finding out what became of an operation. Its
second is no single statement: one that fails rolls its transaction back, as a COMMIT that fails before its effect does.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.exhaustive import odd_answers, rebuilds
from tests.exhaustive.odd_answers import OddCase
from tests.exhaustive.rebuilds import RebuildCase
from tests.exhaustive.scenario import Case, Scenario, play
from tests.simulation.faults import MODES
from tests.simulation.shape import Verdict
from tests.simulation.sometimes import Sometimes

# The second fault of a pair is one of these.
PAIR_MODES = ("before", "after", "hang", "die")
# Of a worker at a host of another kind: what may leave an operation in doubt.
DOUBT_MODES = {
    "commit": ("after", "die", "die-after"),
    "write": ("before", "after", "die", "part-die"),
    "read": ("before", "after", "die"),
}
# The operation whose ambiguous path is taken apart (by the number of its write among the syncs of the scenario).
PAIRED_OPERATION = 3
SENT, RECORDED = "UPDATE nonce_requests SET status = 'SENT", "UPDATE nonce_requests SET status = %s, c"


AnyCase: TypeAlias = Case | RebuildCase | OddCase


@dataclass
class Result:
    """One case's verdict, small enough to cross between processes."""

    case: AnyCase
    kind: str
    violations: list[str]
    sometimes: dict[str, int]
    fired: bool


@dataclass
class Table:
    """Cases run of all there are, by the kind of call."""

    planned: dict[str, int] = field(default_factory=dict)
    run: dict[str, int] = field(default_factory=dict)
    failed: list[Result] = field(default_factory=list)
    sometimes: Sometimes = field(default_factory=Sometimes)

    def add(self, result: Result) -> None:
        self.run[result.kind] = self.run.get(result.kind, 0) + 1
        self.sometimes.add(result.sometimes)
        if result.violations or not result.fired:
            self.failed.append(result)

    @property
    def complete(self) -> bool:
        return self.planned == self.run

    def lines(self) -> Iterator[str]:
        for kind, planned in sorted(self.planned.items()):
            yield f"{kind:24} {self.run.get(kind, 0):>6} run of {planned:>6}"
        run, planned = sum(self.run.values()), sum(self.planned.values())
        yield f"{'all':24} {run:>6} run of {planned:>6}, {len(self.failed)} failed"


def numbered_calls(host: str = "") -> list[tuple[str, str]]:
    """All IO calls of the scenario without a fault, in order."""
    verdict, scenario = play(Case((), host=host))
    assert not verdict.violations, verdict.violations
    calls: list[tuple[str, str]] = scenario.faults.calls
    return calls


def single_cases() -> Iterator[tuple[str, Case]]:
    """Every call in every mode, once and from then on."""
    for number, (kind, _) in enumerate(numbered_calls()):
        for mode in MODES[kind]:
            yield f"{kind}, once", Case(((number, mode),))
            yield f"{kind}, from then on", Case(((number, mode),), persistent=True)


def doubt_cases(host: str) -> Iterator[tuple[str, Case]]:
    """Of a kind of host: every call of a worker that may leave an operation in doubt, killed before and after its
    effect, and its answer lost.
    """
    for number, (kind, who) in enumerate(numbered_calls(host)):
        if who.startswith("worker") and kind in DOUBT_MODES:
            for mode in DOUBT_MODES[kind]:
                yield f"{host}: {kind}", Case(((number, mode),), host=host)


def ambiguous_calls() -> list[int]:
    """From the COMMIT that marks one operation SENT to the COMMIT that records its answer: what may
    leave it in doubt."""
    calls = numbered_calls()
    marks = [number for number, (_, what) in enumerate(calls) if SENT in what]
    first = marks[PAIRED_OPERATION]
    recorded = next(number for number in range(first + 1, len(calls)) if RECORDED in calls[number][1])
    last = next(number for number in range(recorded, len(calls)) if calls[number][0] == "commit")
    return [number for number in range(first, last + 1) if calls[number][0] in {"commit", "write", "read"}]


def pair_cases() -> Iterator[tuple[str, Case]]:
    """A fault on the ambiguous path, and then another at every call until the operation's end is known."""
    calls = numbered_calls()
    for first in ambiguous_calls():
        for mode in MODES[calls[first][0]]:
            _, scenario = play(Case(((first, mode),)))
            for second in range(first + 1, _end_of_doubt(scenario.settled_at_call, scenario.faults.calls, first)):
                kind, who = scenario.faults.calls[second]
                if not who.startswith("worker") or kind == "statement":
                    continue
                for then in PAIR_MODES:
                    if then in MODES[kind]:
                        yield "pairs while in doubt", Case(((first, mode), (second, then)))


def _end_of_doubt(settled_at_call: dict[int, int], calls: list[tuple[str, str]], first: int) -> int:
    """The call after which everything that was sent before `first` is settled."""
    sent = sum(1 for _, what in calls[: first + 1] if SENT in what)
    settled = sorted(settled_at_call.values())
    return min(settled[min(sent, len(settled)) - 1] + 1, len(calls))


def run_case(item: tuple[str, AnyCase]) -> Result:
    kind, case = item
    try:
        verdict, scenario = _play(case)
    except Exception as error:
        return Result(case, kind, [f"the scenario itself broke: {error!r}"], {}, fired=True)
    return Result(case, kind, verdict.violations, verdict.sometimes, bool(scenario.faults.fired))


def _play(case: AnyCase) -> tuple[Verdict, Scenario]:
    match case:
        case RebuildCase():
            return rebuilds.play(case)
        case OddCase():
            return odd_answers.play(case)
    return play(case)


def run_cases(
    cases: Iterable[tuple[str, AnyCase]], workers: int, each: Callable[[Result], None] = lambda result: None
) -> Table:
    """Run them all; the table says whether it was all."""
    listed = list(cases)
    table = Table()
    for kind, _ in listed:
        table.planned[kind] = table.planned.get(kind, 0) + 1
    for result in _results(listed, workers):
        table.add(result)
        each(result)
    return table


def _results(listed: list[tuple[str, AnyCase]], workers: int) -> Iterator[Result]:
    if workers <= 1:
        yield from map(run_case, listed)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(run_case, listed, chunksize=8)
