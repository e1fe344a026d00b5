"""What to do about open alerts, by kind, and where in the console."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from oldhost_sync.console.layout import Entry
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.alert_kinds import KINDS
from oldhost_sync.policy.promise import EMERGENCY_WARNING_MS
from oldhost_sync.policy.writer_policy import EMERGENCY_MS
from oldhost_sync.store.ledger.halt_decision import HaltDecision


def _page(title: str, path: str, **filters: object) -> Entry:
    return Entry(f"{PREFIX}/{path}" + (f"?{urlencode(filters)}" if filters else ""), title)


def _late(title: str, ms: int) -> Entry:
    return _page(title, "changes", priority_class="EMERGENCY", waited_s=ms // 1000)


BROKEN = _late("Emergencies that took longer than promised", EMERGENCY_MS)
_WAITING = _page("The waiting emergencies", "changes", priority_class="EMERGENCY", outcome="OUTSTANDING")
_SESSIONS = _page("Sessions and workers", "sessions")

PAGES: dict[str, Entry] = {
    "ban": _WAITING,
    "halted": _page("Compare both decisions", "halt"),
    "emergency-late": _late("The late emergencies", EMERGENCY_WARNING_MS),
    "emergency-blocked": _WAITING,
    **dict.fromkeys(
        (
            "no-progress",
            "no-session",
            "goes-nowhere",
            "answers-lost",
            "sessions-broken",
            "no-worker",
            "no-relay",
            "database-far",
        ),
        _SESSIONS,
    ),
    "dead-letters": _page("Dead letters by reason", "dead-letters"),
    "forecast": _page("The plan from now", "plan", from_now="true"),
    "schedule-failed": _page("Scheduled changes", "scheduled"),
    "submission-refused": _page("The refused changes", "changes", outcome="REFUSED"),
}


@dataclass(frozen=True, slots=True)
class NextStep:
    """`page`: where to do it, or to start; None if the console has no page for it."""

    text: str
    page: Entry | None = None


def next_steps(decision: HaltDecision | None) -> dict[str, NextStep]:
    """`decision`: on the halt, if there is one that is not carried out yet."""
    steps = {kind: NextStep(about.next_step, PAGES.get(kind)) for kind, about in KINDS.items()}
    return steps | ({"halted": NextStep(f"Nothing to do: {decision.said}", PAGES["halted"])} if decision else {})
