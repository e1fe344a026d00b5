"""What to do about open alerts, by kind, and where in the console."""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.console.layout import Entry
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.rules.alert_kinds import KINDS, emergencies_that_waited
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.read.halt import HaltDecision


def _entry(page: tuple[str, str]) -> Entry:
    title, address = page
    return Entry(f"{PREFIX}/{address}", title)


PAGES: dict[str, Entry] = {kind: _entry(about.page) for kind, about in KINDS.items() if about.page}


def broken(promised: Promises) -> Entry:
    """The emergencies that took longer than promised."""
    return _entry(emergencies_that_waited("Emergencies that took longer than promised", promised.emergency_ms))


@dataclass(frozen=True, slots=True)
class NextStep:
    """`page`: where to do it, or to start; None if the console has no page for it."""

    text: str
    page: Entry | None = None


def next_steps(decision: HaltDecision | None, promised: Promises) -> dict[str, NextStep]:
    """`decision`: on the halt, if there is one that is not carried out yet. `promised`: for the host."""
    pages = PAGES | {"emergency-late": _entry(emergencies_that_waited("The late emergencies", promised.warning_ms))}
    steps = {kind: NextStep(about.next_step, pages.get(kind)) for kind, about in KINDS.items()}
    return steps | ({"halted": NextStep(f"Nothing to do: {decision.sentence}", PAGES["halted"])} if decision else {})
