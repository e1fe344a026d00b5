"""The forecast of the promise to emergencies in words: from those waiting, and what stops sending now."""

from __future__ import annotations

from typing import Any

from oldhost_sync.api.situation import Tone, Word
from oldhost_sync.api.situation_reader import View
from oldhost_sync.console.words import span
from oldhost_sync.policy.tuning import EMERGENCY_MS

_PROMISE = "emergencies within 30 s"
# Only an operator ends these, so their end can't be forecast.
_ENDED_BY = {Word.HALTED: "decides about the halt", Word.PAUSED: "resumes"}


def forecast_emergencies(view: View) -> dict[str, str]:
    """`tone`, `word` and `text`; nothing without the writer."""
    if view.writer is None:
        return {}
    tone, word, text = _forecast(view, view.writer)
    return {"tone": tone, "word": word, "text": f"{_PROMISE}: {text}" if text else _PROMISE}


def _forecast(view: View, writer: dict[str, Any]) -> tuple[Tone, str, str]:
    forecast = writer["forecast"]
    late, waiting = forecast.get("late_emergencies", 0), forecast.get("emergencies", 0)
    late_ones = f"{late} of {waiting} waiting will be late"
    ends = [_ENDED_BY[each] for each in view.situation.words if each in _ENDED_BY]
    if ends:
        operator = f"an operator {' and '.join(ends)}"
        if late:
            return Tone.BAD, "will break", f"{late_ones} even if {operator} now"
        return Tone.WARNING, "at risk", f"new ones wait until {operator}"
    late_for_ms = writer["breaker"]["remaining_ms"] - EMERGENCY_MS
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
