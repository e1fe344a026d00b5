"""The story of a demonstration in numbers, in real (uncompressed) time, for its picture. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oldhost_sync.demo.facts import Change
from oldhost_sync.demo.verdict import Run, lost
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.tuning import EMERGENCY_MS

POINTS = 240
LANES = tuple(cls.value for cls in PriorityClass)
PROMISE_S = EMERGENCY_MS / 1000


@dataclass(frozen=True, slots=True)
class Story:
    """`minutes`: when each figure of the series holds. `accepted`, `superseded` and `applied` count from the start;
    `backlog` is what is waiting, by class. `emergencies`: when each arrived, in minutes, and after how many seconds it
    was applied. `ban`: its first and last minute.
    """

    title: str
    minutes: list[float]
    accepted: list[int]
    superseded: list[int]
    applied: list[int]
    backlog: dict[str, list[int]]
    emergencies: list[tuple[float, float]]
    ban: tuple[float, float]


def story(run: Run) -> Story:
    """What happened, with all times multiplied by `factor`."""
    changes = run.facts.changes
    ends = [change.processed_at for change in changes if change.processed_at is not None]
    lasted_s = max(ends, default=run.started_at + 1) - run.started_at
    moments = [run.started_at + lasted_s * number / (POINTS - 1) for number in range(POINTS)]

    def minute(at: float) -> float:
        return (at - run.started_at) * run.compressed.factor / 60

    def counted(times: Iterable[float | None]) -> list[int]:
        known = sorted(at for at in times if at is not None)
        return [bisect_right(known, moment) for moment in moments]

    def backlog(cls: str) -> list[int]:
        own = [change for change in changes if change.priority_class == cls]
        arrived, ended = counted(change.accepted_at for change in own), counted(change.processed_at for change in own)
        return [one - other for one, other in zip(arrived, ended, strict=True)]

    return Story(
        title=f"{len(changes):,} changes in → {len(run.facts.journal):,} operations, {len(lost(run))} lost",
        minutes=[minute(moment) for moment in moments],
        accepted=counted(change.accepted_at for change in changes),
        superseded=counted(change.processed_at for change in changes if change.outcome == "SUPERSEDED"),
        applied=counted(change.processed_at for change in changes if change.outcome == "APPLIED"),
        backlog={cls: backlog(cls) for cls in LANES},
        emergencies=[(minute(change.accepted_at), _waited_s(run, change)) for change in _emergencies(changes)],
        ban=(minute(run.ban[0]), minute(run.ban[1])),
    )


def _emergencies(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.priority_class == "EMERGENCY" and change.outcome == "APPLIED"]


def _waited_s(run: Run, change: Change) -> float:
    assert change.processed_at is not None
    return (change.processed_at - change.accepted_at) * run.compressed.factor
