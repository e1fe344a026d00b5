"""What is wrong, since when, why, and what to do about it: one word and three sentences, from whatever can be seen.

Pure: what was seen goes in as values. The writer's own word counts while it answers; without it, the database's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from oldhost_sync.policy.alert_kinds import KINDS
from oldhost_sync.store.views.host_condition import HostCondition


class Word(StrEnum):
    """The state in one word."""

    SENDING = "SENDING"
    WAITING = "WAITING"
    BANNED = "BANNED"
    PAUSED = "PAUSED"
    HALTED = "HALTED"
    NO_WRITER = "NO WRITER"


class Tone(StrEnum):
    """How much of a worry it is: none; it passes by itself; somebody decided so; somebody must look."""

    GOOD = "good"
    CALM = "calm"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Situation:
    """`since`, `until`: None where it is not known. `why` and `next_step` are sentences."""

    word: Word
    tone: Tone
    why: str
    next_step: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What could be seen. `writer`: its status, None without an answer, and then `writer_away` says why. `condition`:
    None while the database is away, and then `database_away` says why.
    """

    at: datetime
    writer: dict[str, Any] | None = None
    writer_away: str = ""
    writer_away_kind: str = ""
    condition: HostCondition | None = None
    database_away: str = ""


# Alerts that say since when there is no writer.
_NO_WRITER_ALERTS = {"writer-closed", "writer-failing", "no-worker", "temporal-away"}
_NO_WRITER_STEPS = {
    "writer-missing": "The relay starts it within seconds. If it does not: is a relay running? `oldhost-sync relay`.",
    "writer-failing": "Deploy the release that the run was begun with, or terminate the run in Temporal's UI.",
    "no-worker": "Start a worker: `oldhost-sync worker`.",
}
_TEMPORAL_STEP = "Look whether Temporal and a worker run. Changes are accepted meanwhile, and nothing is lost."
# What the writer's other words mean: why, what to do, and whether it passes by itself.
_WAITS = {
    "REBUILDING": ("A new writer reads what is outstanding from the database.", "Nothing to do; seconds.", True),
    "RENEWING": ("The workflow goes on in a new run, with all that waits.", "Nothing to do; a second.", True),
    "BUSY": ("OldHost answers that it is busy.", "Look at OldHost; the writer keeps trying.", False),
    "UNSTEADY": (
        "OldHost's expected nonce changes from one look to the next.",
        "Look for a stale replica behind OldHost's address, or for another writer.",
        False,
    ),
    "UNREADABLE": (
        "OldHost's answers do not follow the protocol.",
        "Look what stands between us and OldHost.",
        False,
    ),
}
_CONNECTS = {
    "settle": ("An operation may still be applied late; that is waited out.", "Nothing to do; seconds.", True),
    "connection": ("OldHost can't be reached.", "Look at OldHost and the network; the writer keeps trying.", False),
    "keep-alive": ("OldHost closes the connection after each answer.", "Set up keep-alive at OldHost.", False),
    "database": ("The worker can't reach MariaDB.", "Look at MariaDB; the writer goes on when it is back.", False),
    "fenced": ("Another worker has taken over.", "Nothing to do; seconds.", True),
}


def judge(sight: Sight) -> Situation:
    """The situation that `sight` shows."""
    if sight.database_away:
        return _without_database(sight)
    if sight.writer is None:
        return _without_writer(sight)
    state = sight.writer.get("state", "")
    stopped = _stopped(sight, state)
    if stopped is not None:
        return stopped
    found = _sending(sight) if state == Word.SENDING else _waiting(sight.writer, state)
    return replace(found, since=_since(sight, found.word))


def _without_database(sight: Sight) -> Situation:
    word = Word.WAITING if sight.writer is not None else Word.NO_WRITER
    also = "" if sight.writer is not None else f" The writer can't be asked either: {_closed(sight.writer_away)}"
    why = f"MariaDB is away: {_closed(sight.database_away)}{also}"
    step = "Bring MariaDB back. Until then no change is accepted and none is sent; what was accepted is kept."
    return Situation(word, Tone.BAD, why, step)


def _without_writer(sight: Sight) -> Situation:
    """What stops it for good is known from the database; that it is banned is no news while nothing runs."""
    condition = sight.condition
    halted = condition is not None and condition.ledger is not None and condition.ledger["halted"]
    also = f" Besides, it is halted: {_closed(halted)}" if halted else ""
    also += " Besides, an operator paused it." if condition is not None and condition.pause is not None else ""
    step = _NO_WRITER_STEPS.get(sight.writer_away_kind, _TEMPORAL_STEP)
    since = _opened(condition, _NO_WRITER_ALERTS)
    return Situation(Word.NO_WRITER, Tone.BAD, _sentence(sight.writer_away) + also, step, since)


def _stopped(sight: Sight, state: str) -> Situation | None:
    """Halted, paused or banned."""
    assert sight.writer is not None
    condition, breaker = sight.condition, sight.writer["breaker"]
    ledger = (condition.ledger if condition else None) or {}
    if state == Word.HALTED:
        step = "Look at OldHost, then decide: `oldhost-sync resolve adopt` or `resolve resend`, with a reason."
        why = _sentence(ledger.get("halted") or breaker["reason"] or "a person must decide")
        return Situation(Word.HALTED, Tone.BAD, why, step, _opened(condition, {"halted"}))
    if state == Word.PAUSED:
        pause = condition.pause if condition else None
        who = sight.writer["paused"] or {"operator": "somebody", "reason": ""}
        why = f"{who['operator']} paused it: {_closed(who['reason'])}"
        step = "Resume when the reason has passed. Changes are accepted meanwhile."
        return Situation(Word.PAUSED, Tone.WARNING, why, step, pause.created_at if pause else None)
    if state == Word.BANNED:
        until = sight.at + timedelta(milliseconds=breaker["remaining_ms"]) if breaker["remaining_ms"] else None
        urgent = sight.writer["lanes"].get("EMERGENCY", {}).get("depth", 0)
        step = "Nothing to do: OldHost is asked again when the ban is over, and sending goes on."
        if urgent:
            step = f"Call the people behind the waiting emergencies ({urgent}). It goes on by itself after the ban."
        return Situation(Word.BANNED, Tone.BAD, _sentence(breaker["reason"]), step, ledger.get("banned_at"), until)
    return None


def _sending(sight: Sight) -> Situation:
    """That it sends is not all: the worst open alert says what to do next."""
    writer = sight.writer or {}
    alerts = [each for each in (sight.condition.alerts if sight.condition else ()) if each.severity != "info"]
    if writer["waiting"] or writer["in_flight"]:
        why = "Operations go to OldHost, in order."
    else:
        why = "Everything that was accepted is at OldHost."
    if any(writer["forecast"][f"breaks_{name}"] for name in ("emergency", "consistency")):
        why = "Operations go to OldHost, but what waits will break a promise before it is through."
        step = "See the forecast: call those who wait for emergencies; have the applications send less."
        return Situation(Word.SENDING, Tone.WARNING, why, step)
    if not alerts:
        return Situation(Word.SENDING, Tone.GOOD, why, "Nothing to do.")
    known = KINDS.get(alerts[0].kind)
    step = f"Look at the open alert {alerts[0].kind}" + (f": {known.next_step}" if known else ".")
    return Situation(Word.SENDING, Tone.WARNING if alerts[0].severity == "critical" else Tone.GOOD, why, step)


def _waiting(writer: dict[str, Any], state: str) -> Situation:
    if state in _WAITS:
        why, step, passes = _WAITS[state]
    else:
        waiting_for = writer.get("session", {}).get("waiting_for", "")
        nothing = "No session with OldHost is open yet.", "Nothing to do; seconds.", True
        why, step, passes = _CONNECTS.get(waiting_for, nothing)
    return Situation(Word.WAITING, Tone.CALM if passes else Tone.WARNING, why, step)


def _since(sight: Sight, word: Word) -> datetime | None:
    """It sends since its session was opened, and waits since the last one ended, as far as workers have told."""
    session = sight.condition.session if sight.condition else None
    if session is None:
        return None
    return session.ended_at if word is Word.WAITING else session.opened_at if session.ended_at is None else None


def _opened(condition: HostCondition | None, kinds: Iterable[str]) -> datetime | None:
    """When the oldest open alert of these kinds was raised."""
    times = [alert.created_at for alert in condition.alerts if alert.kind in kinds] if condition else []
    return min(times, default=None)


def _sentence(text: str) -> str:
    return _closed(text[:1].upper() + text[1:])


def _closed(text: str) -> str:
    """With a full stop."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…")) or not text else f"{text}."
