"""From what is the case to alerts: detectors report, this decides what opens and what closes. Pure.

A detector looks at a host again and again, and reports of each kind of alert a fact, or that there is none. A fact must
last as long as its kind says (`opens_after_s`) before the alert opens: a restart looks the same for a moment. The first
report of none closes it. A process that starts, or takes over from another one, does not know which alerts are open:
what it reports first is written in any case. What the writer reports is judged in `machine/conditions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oldhost_sync.policy.rules.alert_kinds import KINDS, Severity

# What was written is written again so often: another process may have closed the alert, or opened it, by what it saw.
AGAIN_SECONDS, CLOSED_AGAIN_SECONDS = 30.0, 600.0
# A fact that could not be written for so long, as in an outage of the database, must be reported again.
FRESH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Fact:
    """`why`: the alert's message. `severity`: by default the worst of its kind. `at_once`: it need not last. `count`:
    how many things it is about. `afterwards`: also if it could not be written before it was over.
    """

    why: str
    severity: Severity | None = None
    at_once: bool = False
    count: int = 1
    afterwards: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Open the host's alert of this kind, or bring it up to date; without a fact, close it. `cause`: one open alert for
    each; by default the kind.
    """

    host: str
    kind: str
    fact: Fact | None
    cause: str = ""


@dataclass(slots=True)
class _Condition:
    """`since`: when the fact was reported first; None while there is none. `written`: the last step that was carried
    out, at `written_at`; None if another process may have changed the alert since. `due`: to be written, in this order.
    """

    since: float | None = None
    remembered_until: float | None = None
    reported_at: float = float("-inf")
    written: Step | None = None
    written_at: float = float("-inf")
    due: list[Step] = field(default_factory=list)

    @property
    def is_told_afterwards(self) -> bool:
        return any(step.fact is not None and step.fact.afterwards for step in self.due)


class Conditions:
    """What the detectors of one process report. `now`: monotonic seconds."""

    def __init__(self) -> None:
        self._conditions: dict[tuple[str, str, str], _Condition] = {}

    def found(self, host: str, kind: str, fact: Fact | None, now: float, cause: str = "") -> None:
        """A detector has looked: this is the case; None, it is not."""
        condition = self._conditions.setdefault((host, kind, cause), _Condition())
        if condition.remembered_until is not None and now >= condition.remembered_until:
            condition.since = None
        condition.remembered_until, condition.reported_at = None, now
        since = now if condition.since is None else condition.since
        lasts = fact is None or fact.at_once or now >= since + KINDS[kind].opens_after_s
        condition.since = None if fact is None else since
        step = Step(host, kind, fact, cause)
        is_old = now >= condition.written_at + (CLOSED_AGAIN_SECONDS if fact is None else AGAIN_SECONDS)
        if condition.is_told_afterwards and not (lasts and fact):
            condition.due = [*condition.due, *([] if fact or condition.due[-1] == step else [step])]
        else:
            condition.due = [step] if lasts and (step != condition.written or is_old) else []

    def unknown(self, host: str, kind: str, remembered_until: float = float("-inf")) -> None:
        """The detector can't judge it now; another process may. `remembered_until`: if it looks again before, a fact
        counts as lasting from before.
        """
        condition = self._conditions.setdefault((host, kind, ""), _Condition())
        if condition.remembered_until is None:
            condition.remembered_until = remembered_until
        condition.written, condition.due = None, []

    def due(self, now: float) -> list[Step]:
        """What to write now."""
        return [
            step
            for condition in self._conditions.values()
            for step in condition.due
            if step.fact is None or step.fact.afterwards or now <= condition.reported_at + _fresh_seconds(step.kind)
        ]

    def written(self, step: Step, now: float) -> None:
        """A due step was carried out."""
        condition = self._conditions[step.host, step.kind, step.cause]
        condition.written, condition.written_at = step, now
        condition.due = [due for due in condition.due if due != step]


def _fresh_seconds(kind: str) -> float:
    """Kinds that must last for long are looked at rarely."""
    return max(FRESH_SECONDS, KINDS[kind].opens_after_s)
