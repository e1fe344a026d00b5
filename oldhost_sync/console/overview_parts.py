"""The parts of the overview: read and rendered, for the page and for the live stream."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.situation import Tone, Word
from oldhost_sync.api.situation_reader import Observation, Query, SituationReader, View
from oldhost_sync.console.charts import draw
from oldhost_sync.console.layout import Layout
from oldhost_sync.console.next_steps import broken, next_steps
from oldhost_sync.console.words import span
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.forecast.rates import RATES_OVER_MS
from oldhost_sync.store.outbox.books import Books
from oldhost_sync.store.read.figures import RINGS, SeriesPoint, read_series

# Only an operator ends these, so their end can't be forecast.
_ENDED_BY = {Word.HALTED: "decides about the halt", Word.PAUSED: "resumes"}


def forecast_emergencies(view: View) -> dict[str, str]:
    """`tone`, `word` and `text`; nothing without the writer."""
    if view.writer is None:
        return {}
    tone, word, text = _forecast(view, view.writer)
    promise = f"emergencies within {view.promises.emergency}"
    return {"tone": tone, "word": word, "text": f"{promise}: {text}" if text else promise}


def _forecast(view: View, writer: dict[str, Any]) -> tuple[Tone, str, str]:
    forecast = writer["forecast"]
    late, waiting = forecast.get("late_emergencies", 0), forecast.get("emergencies", 0)
    late_ones = f"{late} of {waiting} waiting will be late"
    ends = [_ENDED_BY[word] for word in view.situation.words if word in _ENDED_BY]
    if ends:
        operator = f"an operator {' and '.join(ends)}"
        if late:
            return Tone.BAD, "will break", f"{late_ones} even if {operator} now"
        return Tone.WARNING, "at risk", f"new ones wait until {operator}"
    late_for_ms = writer["breaker"]["remaining_ms"] - view.promises.emergency_ms
    coming = f"any new one in the next {span(late_for_ms)}" if late_for_ms > 0 else ""
    if late:
        return Tone.BAD, "will break", late_ones + (f", and {coming}" if coming else "")
    if coming:
        return Tone.BAD, "will break", f"{coming} will be late"
    if forecast["breaks_emergency"]:
        return Tone.BAD, "will break", ""
    if Word.BANNED in view.situation.words:
        return Tone.WARNING, "at risk", "new ones wait until OldHost takes operations again"
    if view.situation.tone is Tone.BAD:
        return Tone.WARNING, "at risk", "nothing gets through now"
    return Tone.GOOD, "kept", ""


NEXT_SHOWN = 10
# Each is a template of its own in `parts`, and one element of the page.
PARTS = ("banner", "alerts", "lanes", "flow", "forecast", "nonces", "books", "flight", "upcoming")


class OverviewParts:
    """Reads the figures and renders them. An outage raises no exception."""

    def __init__(self, dependencies: Dependencies, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout = layout
        self._promises = dependencies.policy.promises
        self._situation_reader = SituationReader(dependencies)
        self._series = {span: SeriesCache(dependencies, span, clock) for span in RINGS}
        # By span and whether it is live: the samples, and the charts drawn from them.
        self._drawn: dict[tuple[str, bool], tuple[object, str]] = {}

    async def live(self) -> dict[str, str]:
        """Everything that changes, by the id of its element: all parts, and the charts of each span."""
        charts = asyncio.gather(*(self.charts(span, live=True) for span in RINGS))
        shown = await self.shown(live=True)
        return shown | {f"charts-{span}": chart for span, chart in zip(RINGS, await charts, strict=True)}

    async def shown(self, *, live: bool = False) -> dict[str, str]:
        """The parts by name. `live`: times without their text, which the script fills in."""
        values = figures(await self._situation_reader.read())
        shown: dict[str, str] = {}
        for name in (*PARTS, "chip") if live else PARTS:
            shown[name] = self._layout.part(name, live=live, **values)
            await asyncio.sleep(0)  # without pauses every other request would wait for all parts
        return shown

    async def charts(self, span: str, *, live: bool = False) -> str:
        """The charts of `span`, a key of RINGS; drawn again when its samples were read again."""
        sight = await self._series[span].see()
        of, drawn = self._drawn.get((span, live), (None, ""))
        if of is not sight:
            seen, at = sight
            charts = draw(seen.value or (), span, at, self._promises)
            drawn = self._layout.part("charts", live=live, charts=charts, trouble=seen.trouble, is_empty=not seen.value)
            self._drawn[span, live] = sight, drawn
        return drawn


class SeriesCache:
    """One span's samples, read again when there may be a new one."""

    def __init__(self, dependencies: Dependencies, span: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._step_s = RINGS[span].step_s
        self._query: Query[Sequence[SeriesPoint]] = Query(
            lambda: dependencies.database.run(lambda connection: read_series(connection, dependencies.host, span)),
            "MariaDB does not answer in time",
        )
        self._fresh_until = float("-inf")
        self._seen: tuple[Observation[Sequence[SeriesPoint]], datetime] | None = None

    async def see(self) -> tuple[Observation[Sequence[SeriesPoint]], datetime]:
        """The samples, and the time at which their charts end."""
        now = self._clock()
        if self._seen is None or self._seen[0].trouble or now >= self._fresh_until:
            self._fresh_until = now + self._step_s
            self._seen = await self._query.see(), datetime.now(UTC)
        return self._seen


def figures(view: View) -> dict[str, Any]:
    """What the templates show: the view, and what is derived from it."""
    forecast = view.writer["forecast"] if view.writer else None
    drain_ms = forecast["drain_ms"] if forecast else None
    return {
        "view": view,
        "situation": view.situation,
        "lanes": _lanes(view),
        "urgent": forecast_emergencies(view),
        "through_at": view.at + timedelta(milliseconds=drain_ms) if drain_ms is not None else None,
        "compression": _compression(view.status),
        "balances": _balances(view.status),
        "next_shown": NEXT_SHOWN,
        "next_steps": next_steps(view.condition.decision if view.condition else None, view.promises),
        "broken": broken(view.promises),
        "rates_over_ms": RATES_OVER_MS,
    }


def _lanes(view: View) -> list[dict[str, Any]]:
    """By class: depth, oldest age against its promise, share of the next turns."""
    turns = Counter(change["priority_class"] for change in view.upcoming or ())
    return [
        {
            "name": cls.value,
            "promise_ms": view.promises.of(cls),
            "turns": turns[cls.value] / turns.total() if turns else None,
            **view.lanes.get(cls.value, {"depth": None, "oldest_age_ms": None}),
        }
        for cls in PriorityClass
    ]


def _compression(status: dict[str, Any] | None) -> dict[str, float] | None:
    """Changes that have ended, and the operations that this took."""
    if status is None:
        return None
    books = status["books"]
    operations = books["applied"] + books["dead"]
    changes = operations + books["superseded"] + books["no_op"] + books["stale"]
    return {"changes": changes, "operations": operations, "ratio": changes / operations} if operations else None


def _balances(status: dict[str, Any] | None) -> bool | None:
    return None if status is None else Books(**status["books"]).balance
