"""The story of a demonstration in numbers, in real time, as one SVG picture, and as lines for a terminal."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from rich.text import Text

from oldhost_sync.demo.facts import Change
from oldhost_sync.demo.verdict import Run, lost
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.tuning import EMERGENCY_MS

POINTS = 240
LANES = tuple(cls.value for cls in PriorityClass)
PROMISE_S = EMERGENCY_MS / 1000
WIDTH, HEIGHT = 960, 660
LEFT, RIGHT = 72, 936
# Top and bottom of the three panels.
COUNTS, BACKLOG, EMERGENCIES = (84, 244), (300, 430), (486, 606)
MINUTES_PER_TICK = 5
# The seconds of emergencies: from a tenth to a thousand, each power of ten has the same height.
LEAST_S, MOST_S = 0.1, 1_000.0
TERMINAL_COLUMNS = 60
BLOCKS = " ▁▂▃▄▅▆▇█"

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #334155 } .title { font-size: 18px; font-weight: 600; fill: #0f172a }
.name { font-weight: 600 } .page { fill: #ffffff } .ban { fill: #fecaca } .grid { stroke: #e2e8f0 }
.accepted, .LWW { --ink: #64748b } .superseded { --ink: #0891b2 } .applied, .TXN { --ink: #2563eb }
.EMERGENCY { --ink: #dc2626 } .line { fill: none; stroke: var(--ink); stroke-width: 2 } .area { fill: var(--ink) }
.dot { fill: var(--ink); fill-opacity: .7 } .promise { stroke: #dc2626; stroke-dasharray: 5 4 }
.key { fill: var(--ink) }
@media (prefers-color-scheme: dark) { text { fill: #cbd5e1 } .title { fill: #f1f5f9 } .page { fill: #0f172a }
.ban { fill: #4c1d1d } .grid { stroke: #1e293b } .accepted, .LWW { --ink: #94a3b8 } .superseded { --ink: #22d3ee }
.applied, .TXN { --ink: #60a5fa } .EMERGENCY { --ink: #f87171 } }
"""

Panel = tuple[int, int]


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


def story_of(run: Run) -> Story:
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
        emergencies=[(minute(change.accepted_at), _waited_s(run, change)) for change in _applied_emergencies(changes)],
        ban=(minute(run.ban[0]), minute(run.ban[1])),
    )


def _applied_emergencies(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.priority_class == "EMERGENCY" and change.outcome == "APPLIED"]


def _waited_s(run: Run, change: Change) -> float:
    assert change.processed_at is not None
    return (change.processed_at - change.accepted_at) * run.compressed.factor


def svg(story: Story) -> str:
    """A self-contained picture: no script, no external font or address; for light and dark themes."""
    shape = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(story.title)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {shape}><style>{STYLE}</style>',
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(LEFT, 34, story.title, "title"),
        *(_ban(story, panel) for panel in (COUNTS, BACKLOG, EMERGENCIES)),
        _text(_x(story, sum(story.ban) / 2), COUNTS[0] + 14, "banned", anchor="middle"),
        *_counts(story),
        *_backlog(story),
        *_emergencies(story),
        *_minutes(story),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def lines(story: Story) -> list[Text]:
    """The same for a terminal: one line of blocks for each series, red where OldHost banned us."""
    series = [("accepted", story.accepted), ("superseded", story.superseded), ("applied", story.applied)]
    series += [(f"{cls} waiting", story.backlog[cls]) for cls in LANES]
    shown = [Text(story.title, "bold")]
    for name, values in series:
        line = Text(f"{name:>18} ")
        line.append_text(_blocks(story, values))
        shown.append(line.append(f" {max(values):,} at most"))
    last = f"{story.minutes[-1]:.0f} min"
    ban = f"red: the ban, minute {story.ban[0]:.0f} to {story.ban[1]:.0f}"
    return [*shown, Text(f"{'':18} 0 min{ban:^{TERMINAL_COLUMNS - 5 - len(last)}}{last}", "dim")]


def _blocks(story: Story, values: Sequence[int]) -> Text:
    most, made = max(1, *values), Text()
    for column in range(TERMINAL_COLUMNS):
        at = column * (len(values) - 1) // (TERMINAL_COLUMNS - 1)
        banned = story.ban[0] <= story.minutes[at] < story.ban[1]
        made.append(BLOCKS[math.ceil(values[at] / most * (len(BLOCKS) - 1))], "red" if banned else "cyan")
    return made


# --------------------------------------------------------------------------------------------------------- the panels


def _counts(story: Story) -> list[str]:
    series = {"accepted": story.accepted, "superseded": story.superseded, "applied": story.applied}
    most = _round_up(max(story.accepted))
    drawn = [
        f'<polyline class="line {name}" points="{_points(story, values, COUNTS, most)}"/>'
        for name, values in series.items()
    ]
    return [*_scale(COUNTS, most), *_legend(COUNTS, "changes, from the start", list(series)), *drawn]


def _backlog(story: Story) -> list[str]:
    below, drawn = [0] * len(story.minutes), []
    most = _round_up(max(sum(column) for column in zip(*story.backlog.values(), strict=True)))
    for cls in reversed(LANES):
        above = [low + waiting for low, waiting in zip(below, story.backlog[cls], strict=True)]
        edge = _points(story, above, BACKLOG, most)
        back = " ".join(reversed(_points(story, below, BACKLOG, most).split(" ")))
        drawn.append(f'<polygon class="area {cls}" points="{edge} {back}"/>')
        below = above
    return [*_scale(BACKLOG, most), *_legend(BACKLOG, "waiting, by class", LANES), *drawn]


def _emergencies(story: Story) -> list[str]:
    drawn = [_text(LEFT, EMERGENCIES[0] - 14, "emergencies: seconds from accepted to applied", "name")]
    for seconds in (0.1, 1, 10, 100, 1_000):
        y = _seconds_y(seconds)
        drawn.append(_text(LEFT - 8, y + 4, f"{seconds:g} s", anchor="end"))
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    y = _seconds_y(PROMISE_S)
    drawn.append(f'<line class="promise" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    drawn.append(_text(RIGHT, y - 4, f"promised: {PROMISE_S:g} s, except during a ban", anchor="end"))
    drawn += [
        f'<circle class="dot EMERGENCY" cx="{_x(story, minute):.1f}" cy="{_seconds_y(seconds):.1f}" r="3"/>'
        for minute, seconds in story.emergencies
    ]
    return drawn


# --------------------------------------------------------------------------------------------------------- their parts


def _ban(story: Story, panel: Panel) -> str:
    top, bottom = panel
    left, right = _x(story, story.ban[0]), _x(story, story.ban[1])
    return f'<rect class="ban" x="{left:.1f}" y="{top}" width="{max(right - left, 0):.1f}" height="{bottom - top}"/>'


def _scale(panel: Panel, most: int) -> list[str]:
    top, bottom = panel
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(_text(LEFT - 8, y + 4, f"{round(most * share):,}", anchor="end"))
    return drawn


def _legend(panel: Panel, what: str, names: Sequence[str]) -> list[str]:
    y, drawn = panel[0] - 14, [_text(LEFT, panel[0] - 14, what, "name")]
    for number, name in enumerate(reversed(names)):
        x = RIGHT - 108 * (number + 1)
        drawn.append(f'<rect class="key {name}" x="{x}" y="{y - 9}" width="10" height="10"/>')
        drawn.append(_text(x + 15, y, name))
    return drawn


def _minutes(story: Story) -> list[str]:
    ticks = range(0, int(story.minutes[-1]) + 1, MINUTES_PER_TICK)
    drawn = [_text(_x(story, tick), EMERGENCIES[1] + 20, f"{tick}", anchor="middle") for tick in ticks]
    return [*drawn, _text(RIGHT, EMERGENCIES[1] + 40, "minutes in real time", anchor="end")]


def _points(story: Story, values: Sequence[int], panel: Panel, most: int) -> str:
    top, bottom = panel
    pairs = zip(story.minutes, values, strict=True)
    return " ".join(f"{_x(story, at):.1f},{bottom - value / most * (bottom - top):.1f}" for at, value in pairs)


def _x(story: Story, minute: float) -> float:
    return LEFT + min(max(minute / story.minutes[-1], 0.0), 1.0) * (RIGHT - LEFT)


def _seconds_y(seconds: float) -> float:
    top, bottom = EMERGENCIES
    share = math.log(min(max(seconds, LEAST_S), MOST_S) / LEAST_S) / math.log(MOST_S / LEAST_S)
    return bottom - share * (bottom - top)


def _round_up(most: int) -> int:
    """To two digits that are easily read: 4,508 → 4,600."""
    step = int(10 ** max(len(str(most)) - 2, 0))
    return max(math.ceil(most / step) * step, 1)


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    shown = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{shown}>{escape(text)}</text>'
