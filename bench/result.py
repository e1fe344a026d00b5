"""What a measurement gives: tables of figures with their conditions, targets met or missed, and series to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, isnan
from typing import Any

# Two runs of the same thing differ by so much on a quiet machine; what is nearer than this is level.
LEVEL = 0.01
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Target:
    """One promise beside what was measured. `bound`: at most ("<=") or at least (">=") `limit`.

    `rivals`: what the rivals reached in the same run, by name.
    """

    what: str
    measured: float
    bound: str
    limit: float
    unit: str = ""
    rivals: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return self.measured <= self.limit if self.bound == "<=" else self.measured >= self.limit

    @property
    def ahead(self) -> list[str]:
        """The rivals that were better by more than `LEVEL`."""
        if self.bound == "<=":
            return [name for name, value in self.rivals.items() if value < self.measured * (1 - LEVEL)]
        return [name for name, value in self.rivals.items() if value > self.measured * (1 + LEVEL)]


@dataclass(slots=True)
class Table:
    title: str
    header: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)


@dataclass(slots=True)
class Series:
    """Points to draw as one line."""

    name: str
    points: list[tuple[float, float]]


@dataclass(slots=True)
class Picture:
    name: str
    title: str
    x: str
    y: str
    series: list[Series]
    log_x: bool = False
    bars: bool = False
    labels: list[str] = field(default_factory=list)
    # Parts of the x axis with a word of their own: from, to, word.
    shades: list[tuple[float, float, str]] = field(default_factory=list)
    log_y: bool = False


@dataclass(slots=True)
class Result:
    """`conditions` say under what the figures hold; `notes` explain what they show."""

    name: str
    title: str
    conditions: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[Cell]] = ()) -> Table:
        made = Table(title, header, list(rows))
        self.tables.append(made)
        return made

    def target(
        self,
        what: str,
        measured: float,
        bound: str,
        limit: float,
        unit: str = "",
        rivals: Mapping[str, float] | None = None,
    ) -> None:
        self.targets.append(Target(what, measured, bound, limit, unit, rivals or {}))

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for target, made in zip(self.targets, found["targets"], strict=True):
            made |= {"met": target.met, "ahead": target.ahead}
        return found


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least `part` of all are not above; nan of none."""
    if not values:
        return float("nan")
    return sorted(values)[max(0, ceil(part * len(values) - 1e-9) - 1)]


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99 and the largest."""
    return quantile(values, 0.5), quantile(values, 0.99), max(values, default=float("nan"))


def shown(value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}" if abs(value) >= 0.1 else f"{value:.2g}"
