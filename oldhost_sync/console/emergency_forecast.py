"""The forecast of the promise to emergencies: from those that wait and what stops sending now, in words."""

from __future__ import annotations

from typing import Any

from oldhost_sync.api.lookout import View
from oldhost_sync.api.situation import Tone, Word
from oldhost_sync.console.words import span
from oldhost_sync.policy.writer_policy import EMERGENCY_MS

_PROMISE = "emergencies within 30 s"
# What only somebody ends, so that nobody can say when.
_ENDED_BY = {Word.HALTED: "decides about the halt", Word.PAUSED: "resumes"}


def forecast_emergencies(view: View) -> dict[str, str]:
    """`tone`, `word` and `text`; nothing without the writer."""
    if view.writer is None:
        return {}
    tone, word, text = _foreseen(view, view.writer)
    return {"tone": tone, "word": word, "text": f"{_PROMISE}: {text}" if text else _PROMISE}


def _foreseen(view: View, writer: dict[str, Any]) -> tuple[Tone, str, str]:
    forecast = writer["forecast"]
    late, waiting = forecast.get("late_emergencies", 0), forecast.get("emergencies", 0)
    told = f"{late} of {waiting} waiting will be late"
    ends = [_ENDED_BY[each] for each in view.situation.words if each in _ENDED_BY]
    if ends:
        somebody = f"somebody {' and '.join(ends)}"
        if late:
            return Tone.BAD, "will break", f"{told} even if {somebody} now"
        return Tone.WARNING, "at risk", f"what comes now waits until {somebody}"
    late_for_ms = writer["breaker"]["remaining_ms"] - EMERGENCY_MS
    coming = f"what comes in the next {span(late_for_ms)}" if late_for_ms > 0 else ""
    if late:
        return Tone.BAD, "will break", told + (f", and {coming}" if coming else "")
    if coming:
        return Tone.BAD, "will break", f"{coming} will be late"
    return (Tone.BAD, "will break", "") if forecast["breaks_emergency"] else (Tone.GOOD, "kept", "")
