"""What is wrong, since when, why, and what to do about it: words and sentences, from whatever can be seen.

Pure: what was seen goes in as values. The writer's own word counts while it answers; without it, the database's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from oldhost_sync.policy.alert_kinds import KINDS
from oldhost_sync.policy.phrases import instant
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
class Stop:
    """What keeps the writer from sending. `since`, `until`: None where it is not known."""

    word: Word
    why: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """`since`, `until`: None where it is not known. `why` and `next_step` are sentences. `also`: what else stops it."""

    word: Word
    tone: Tone
    why: str
    next_step: str
    since: datetime | None = None
    until: datetime | None = None
    also: tuple[Stop, ...] = ()

    @property
    def words(self) -> tuple[Word, ...]:
        return (self.word, *(stop.word for stop in self.also))


@dataclass(frozen=True, slots=True)
class Sight:
    """What could be seen. `writer`: its status, None without an answer, and then `writer_away` says why. `condition`:
    None while the database is away, and then `database_away` says why. Since when, if that was seen.
    """

    at: datetime
    writer: dict[str, Any] | None = None
    writer_away: str = ""
    writer_away_kind: str = ""
    condition: HostCondition | None = None
    database_away: str = ""
    writer_away_since: datetime | None = None
    database_away_since: datetime | None = None


# Alerts that say since when there is no writer.
_NO_WRITER_ALERTS = {"writer-closed", "writer-failing", "no-worker", "temporal-away"}
_NO_WRITER_STEPS = {
    "writer-missing": "The relay starts it within seconds. If it does not: is a relay running? `oldhost-sync relay`.",
    "writer-failing": "Deploy the release that the run was begun with, or terminate the run in Temporal's UI.",
    "no-worker": "Start a worker: `oldhost-sync worker`.",
}
_TEMPORAL_STEP = "Look whether Temporal and a worker run. Changes are accepted meanwhile, and nothing is lost."
_DECIDE = "adopt OldHost's count, or resend what the ledger has"
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
    stops = tuple(_stops(sight))
    if sight.writer is None:
        return _without_writer(sight, stops)
    if stops:
        return _stopped(sight, stops)
    state = sight.writer.get("state", "")
    found = _sending(sight) if state == Word.SENDING else _waiting(sight, state)
    return replace(found, since=_since(sight, found.word))


def _without_database(sight: Sight) -> Situation:
    word = Word.WAITING if sight.writer is not None else Word.NO_WRITER
    also = "" if sight.writer is not None else f" The writer can't be asked either: {_closed(sight.writer_away)}"
    why = f"MariaDB is away: {_closed(sight.database_away)}{also}"
    step = "Bring MariaDB back. Until then no change is accepted and none is sent; what was accepted is kept."
    return Situation(word, Tone.BAD, why, step, sight.database_away_since)


def _without_writer(sight: Sight, stops: tuple[Stop, ...]) -> Situation:
    """What stops it besides is known from the database."""
    workers, silent_since = _workers(sight)
    why = _with_decision(_sentence(sight.writer_away) + workers, sight)
    step = _NO_WRITER_STEPS.get(sight.writer_away_kind, _TEMPORAL_STEP)
    known = (_opened(sight.condition, _NO_WRITER_ALERTS), silent_since, sight.writer_away_since)
    since = min((each for each in known if each is not None), default=None)
    return Situation(Word.NO_WRITER, Tone.BAD, why, step, since, also=stops)


def _workers(sight: Sight) -> tuple[str, datetime | None]:
    """Whether a worker is at work, and else since when none is, as far as they have told of themselves."""
    workers = sight.condition.workers if sight.condition is not None else ()
    if not workers:
        return "", None
    last = max(workers, key=lambda each: each.seen_at)
    seen = instant(last.seen_at)
    if last.at_work:
        # Temporal misses a worker sooner than it counts as silent.
        since = last.seen_at if sight.writer_away_kind == "no-worker" else None
        return f" Worker {last.name} was at work at {seen}.", since
    how = f"left at {seen}" if last.has_left else f"was at work until {seen}, and was killed, is frozen, or is cut off"
    return f" No worker is at work: {last.name} {how}.", last.seen_at


def _stopped(sight: Sight, stops: tuple[Stop, ...]) -> Situation:
    """Halted, paused or banned, or several of these."""
    assert sight.writer is not None
    first, *others = stops
    words = [stop.word for stop in stops]
    urgent = sight.writer["lanes"].get("EMERGENCY", {}).get("depth", 0)
    step = f"Call the people behind the waiting emergencies ({urgent}). " if urgent else ""
    step += _step(sight, words)
    tone = Tone.WARNING if words == [Word.PAUSED] else Tone.BAD
    why = first.why if first.word is Word.HALTED else _with_decision(first.why, sight)
    return Situation(first.word, tone, why, step, first.since, first.until, tuple(others))


def _step(sight: Sight, words: Sequence[Word]) -> str:
    ban_ends = " Sending goes on when the ban is over, too." if Word.BANNED in words else ""
    match words[0]:
        case Word.HALTED if _decision(sight):
            return f"Nothing to do.{ban_ends}"
        case Word.HALTED:
            resume = " It is paused, too: resume." if Word.PAUSED in words else ""
            return f"Look at OldHost, then decide: {_DECIDE}.{resume}{ban_ends}"
        case Word.PAUSED:
            return f"Resume when the reason has passed. Changes are accepted meanwhile.{ban_ends}"
    return "Nothing to do about the ban: OldHost is asked again when it is over, and sending goes on."


def _stops(sight: Sight) -> Iterator[Stop]:
    """By the writer's word while it answers, else by the database's."""
    writer = {"state": "", "paused": None, "breaker": {}} | (sight.writer or {})
    condition = sight.condition
    ledger = (condition.ledger if condition else None) or {}
    if writer["state"] == Word.HALTED or (ledger.get("halted") and not ledger.get("resolve_mode")):
        reason = ledger.get("halted") or writer["breaker"].get("reason") or "a person must decide"
        yield Stop(Word.HALTED, _decision(sight) or _sentence(reason), _opened(condition, {"halted"}))
    pause = condition.pause if condition else None
    if writer["state"] == Word.PAUSED or (pause if sight.writer is None else writer["paused"]):
        told = writer["paused"] or {}
        operator = told.get("operator") or (pause.operator if pause else "somebody")
        if pause is not None and pause.verified is False and pause.operator == operator:
            operator = f"{operator} ({pause.way})"
        reason = told.get("reason") or (pause.reason if pause else "")
        yield Stop(Word.PAUSED, f"{operator} paused it: {_closed(reason)}", pause.created_at if pause else None)
    ban, left_ms = condition.ban if condition else None, writer["breaker"].get("remaining_ms", 0)
    if writer["state"] == Word.BANNED or (ban if sight.writer is None else left_ms):
        known = [ban.began_at if ban else None, _opened(condition, {"ban"})]
        since = min((at for at in known if at is not None), default=None)
        until = ban.until if ban else sight.at + timedelta(milliseconds=left_ms) if left_ms else None
        yield Stop(Word.BANNED, ban.cause if ban else "OldHost refuses everything.", since, until)


def _decision(sight: Sight) -> str:
    """What was decided about a halt, and is not carried out; empty where there is nothing."""
    decision = sight.condition.decision if sight.condition else None
    return decision.said if decision else ""


def _with_decision(why: str, sight: Sight) -> str:
    return f"{why} {_decision(sight)}".rstrip()


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


def _waiting(sight: Sight, state: str) -> Situation:
    writer = sight.writer or {}
    if state in _WAITS:
        why, step, passes = _WAITS[state]
    else:
        waiting_for = writer.get("session", {}).get("waiting_for", "")
        nothing = "No session with OldHost is open yet.", "Nothing to do; seconds.", True
        why, step, passes = _CONNECTS.get(waiting_for, nothing)
    return Situation(Word.WAITING, Tone.CALM if passes else Tone.WARNING, _with_decision(why, sight), step)


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
