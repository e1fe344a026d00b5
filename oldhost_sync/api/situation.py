"""What is wrong, since when, why, and what to do about it, in words and sentences.

Pure: the observations are passed in as values. While the writer answers, its own state counts; otherwise the
database's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from oldhost_sync.policy.plain_text import instant, quantity
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.settings import name_in_environment
from oldhost_sync.store.read.host_condition import HostCondition
from oldhost_sync.store.read.sessions import worker_silence


class Word(StrEnum):
    """The state in one word."""

    SENDING = "SENDING"
    AT_RISK = "AT RISK"
    WAITING = "WAITING"
    BANNED = "BANNED"
    PAUSED = "PAUSED"
    HALTED = "HALTED"
    NO_WRITER = "NO WRITER"


class Tone(StrEnum):
    """How serious the state is. GOOD: no problem; CALM: it resolves itself; WARNING: an operator caused it or should
    look at it; BAD: an operator must act.
    """

    GOOD = "good"
    CALM = "calm"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Stop:
    """What keeps the writer from sending. `since`, `until`: None if not known."""

    word: Word
    why: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """`since`, `until`: None if not known. `why` and `next_step` are sentences. `also`: what else stops the writer."""

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
class Observations:
    """The observations. `writer`: its status; None if it did not answer, and then `writer_away` says why, and
    `writer_step` what to do, if that is known. `condition`: None while the database is away, and then `database_away`
    says why. The `…_since` fields: None if not known. `promises`: the host's;
    `called`: what people set for a field of `HostSettings`.
    """

    at: datetime
    writer: dict[str, Any] | None = None
    writer_away: str = ""
    writer_away_kind: str = ""
    condition: HostCondition | None = None
    database_away: str = ""
    writer_away_since: datetime | None = None
    database_away_since: datetime | None = None
    writer_step: str = ""
    promises: Promises = USUAL_PROMISES
    called: Callable[[str], str] = name_in_environment


# Alerts that show since when there has been no writer.
_NO_WRITER_ALERTS = {"writer-closed", "paused-in-temporal", "writer-failing", "no-worker", "temporal-away"}
_NO_WRITER_STEPS = {
    "writer-missing": "The relay starts it within seconds. If it does not: is a relay running? `oldhost-sync relay`.",
    "paused-in-temporal": "Unpause it in Temporal: `temporal workflow unpause -w sync-writer:HOST`.",
    "writer-failing": "Look at the workers' logs: restart a worker that is stuck, or deploy the release that the run "
    "began with. Only if neither helps, terminate the run in Temporal's UI.",
    "no-worker": "Start a worker: `oldhost-sync worker`. If workers are at work, see the alert no-worker.",
}
_TEMPORAL_STEP = (
    "Check that Temporal and a worker are running. Until then changes are still accepted, and nothing is lost."
)
_ASKED = "The ban may be over: OldHost is being asked."
_DECIDE = "adopt OldHost's count, or resend the ledger's operations"
_NOTHING = "Nothing to do; this takes seconds."
# While one of these is open nothing gets through, even if a session is open for a moment now and then.
_STALLS = ("database-far", "goes-nowhere", "no-progress", "no-session")
# The writer's other states: why, what to do, and whether the state resolves itself.
_WAITS = {
    "REBUILDING": ("A new writer is reading all outstanding changes from the database.", _NOTHING, True),
    "RENEWING": ("The workflow continues in a new run, with all waiting changes.", _NOTHING, True),
    "BUSY": ("OldHost answers that it is busy.", "Check OldHost; the writer keeps trying.", False),
    "UNSTEADY": (
        "OldHost's expected nonce changes from one probe to the next.",
        "Look for a stale replica behind OldHost's address, or for another writer.",
        False,
    ),
    "UNREADABLE": (
        "OldHost's answers do not follow the protocol.",
        "Check what is between the worker and OldHost, such as a proxy.",
        False,
    ),
    "UNAUTHORIZED": (
        "OldHost, or a proxy before it, refuses our credentials or our address.",
        "The alert no-progress says who. Compare {auth_file} and {cert_file} with theirs, and let our address in.",
        False,
    ),
    "UNTRUSTED": (
        "There is no trusted TLS connection with OldHost.",
        "The alert no-progress says what is wrong. Compare {url} and {ca_file} with OldHost.",
        False,
    ),
    "REFUSED": (
        "OldHost, or a proxy before it, refuses every request.",
        "The alert no-progress has the status. Check OldHost and what is before it; the writer asks again by itself.",
        False,
    ),
    "SILENT": (
        "OldHost takes connections and gives no answer in time.",
        "Check OldHost. If it is only slow, raise {request_timeout_seconds} and {settle_seconds} of all workers.",
        False,
    ),
}
# The fields of `HostSettings` that these name.
_NAMED = (
    "url",
    "ca_file",
    "cert_file",
    "auth_file",
    "sign_key_file",
    "proxy_auth_file",
    "request_timeout_seconds",
    "settle_seconds",
)
_CONNECTS = {
    "settle": ("An operation may still be applied late; the writer waits for the settle time.", _NOTHING, True),
    "connection": ("OldHost can't be reached.", "Check OldHost and the network; the writer keeps trying.", False),
    "in-use": (
        "OldHost serves another connection.",
        "It may still work on our last request. If this lasts, look for a frozen worker, or another program.",
        False,
    ),
    "silent": (
        "OldHost does not answer in time.",
        "Check OldHost. If it is only slow, raise {request_timeout_seconds}, with {settle_seconds}.",
        False,
    ),
    "credentials": (
        "OldHost refuses our credentials.",
        "Correct what it refuses: {url}, {auth_file}, {sign_key_file} or {cert_file}; for a proxy {proxy_auth_file}.",
        False,
    ),
    "tls": (
        "There is no trusted TLS connection with OldHost.",
        "Compare {url} and {ca_file} with OldHost's certificate. One that has expired is renewed there.",
        False,
    ),
    "refused": ("OldHost refuses every request.", "Ask OldHost's operators why; the writer keeps trying.", False),
    "busy": ("OldHost answers that it is busy.", "Check OldHost; the writer keeps trying.", False),
    "keep-alive": ("OldHost closes the connection after each answer.", "Enable keep-alive at OldHost.", False),
    "database": ("The worker can't reach MariaDB.", "Check MariaDB; the writer continues when it is back.", False),
    "mapping": (
        "The worker lacks the code of the host's mapping.",
        "Install the package of the code with all workers, or install another mapping.",
        False,
    ),
    "fenced": ("Another worker has taken over.", _NOTHING, True),
}
# The reasons of a standstill that an operator ends by what is set or installed.
_BY_SETTINGS = ("tls", "credentials", "silent", "mapping")


def judge(sight: Observations) -> Situation:
    """The situation that `sight` shows."""
    if sight.database_away:
        return _without_database(sight)
    stops = tuple(_stops(sight))
    if sight.writer is None:
        return _without_writer(sight, stops)
    if stops:
        return _stopped(sight, stops)
    state = sight.writer.get("state", "")
    if stalled := _stalled(sight):
        return stalled
    situation = _sending(sight) if state == Word.SENDING else _waiting(sight, state)
    return replace(situation, since=_since(sight, situation.word))


def _without_database(sight: Observations) -> Situation:
    word = Word.WAITING if sight.writer is not None else Word.NO_WRITER
    also = "" if sight.writer is not None else f" The writer does not answer either: {_closed(sight.writer_away)}"
    why = f"MariaDB is away: {_closed(sight.database_away)}{also}"
    step = "Bring MariaDB back. Until then changes are neither accepted nor sent; accepted changes are kept."
    return Situation(word, Tone.BAD, why, step, sight.database_away_since)


def _without_writer(sight: Observations, stops: tuple[Stop, ...]) -> Situation:
    """No writer; the database still shows what else stops it (`stops`)."""
    workers = sight.condition.workers if sight.condition is not None else ()
    why, step, silent_since = _sentence(sight.writer_away), _step_without_writer(sight), None
    if silence := worker_silence(workers):
        # What Temporal says of a worker that is gone differs from one look to the next; its own last report does not.
        why, step, silent_since = silence.why, silence.step, silence.since
    elif workers:
        last = max(workers, key=lambda worker: worker.seen_at)
        why = f"{why} Worker {last.name} was at work at {instant(last.seen_at)}."
        # Temporal notices a missing worker before its reports are overdue.
        silent_since = last.seen_at if sight.writer_away_kind == "no-worker" else None
    begins = (_opened(sight.condition, _NO_WRITER_ALERTS), silent_since, sight.writer_away_since)
    since = min((begin for begin in begins if begin is not None), default=None)
    return Situation(Word.NO_WRITER, Tone.BAD, _with_decision(why, sight), step, since, also=stops)


def _step_without_writer(sight: Observations) -> str:
    return _sentence(sight.writer_step) or _NO_WRITER_STEPS.get(sight.writer_away_kind, _TEMPORAL_STEP)


def _stopped(sight: Observations, stops: tuple[Stop, ...]) -> Situation:
    """The writer is halted, paused or banned, or several of these."""
    assert sight.writer is not None
    first, *others = stops
    words = [stop.word for stop in stops]
    urgent = sight.writer["lanes"].get("EMERGENCY", {}).get("depth", 0)
    step = f"Call the people affected by the waiting emergencies ({urgent}). " if urgent else ""
    step += _step(sight, words)
    tone = Tone.WARNING if words == [Word.PAUSED] else Tone.BAD
    why = first.why if first.word is Word.HALTED else _with_decision(first.why, sight)
    return Situation(first.word, tone, why, step, first.since, first.until, tuple(others))


def _step(sight: Observations, words: Sequence[Word]) -> str:
    ban_ends = " Sending continues only when the ban is over, too." if Word.BANNED in words else ""
    match words[0]:
        case Word.HALTED if _decision(sight):
            return f"Nothing to do.{ban_ends}"
        case Word.HALTED:
            resume = " It is also paused: resume it." if Word.PAUSED in words else ""
            return f"Check OldHost, then decide: {_DECIDE}.{resume}{ban_ends}"
        case Word.PAUSED if sight.condition and sight.condition.pause and sight.condition.pause.until:
            return f"Nothing to do: the pause ends by itself. Changes are still accepted.{ban_ends}"
        case Word.PAUSED:
            return f"Resume when the reason no longer applies. Changes are still accepted.{ban_ends}"
    return "Nothing to do about the ban: when it is over, OldHost is asked again and sending continues."


def _stops(sight: Observations) -> Iterator[Stop]:
    """By the writer's state while it answers, otherwise by the database."""
    writer = {"state": "", "paused": None, "breaker": {}} | (sight.writer or {})
    condition = sight.condition
    ledger = (condition.ledger if condition else None) or {}
    if writer["state"] == Word.HALTED or (ledger.get("halted") and not ledger.get("resolve_mode")):
        reason = ledger.get("halted") or writer["breaker"].get("reason") or "a person must decide"
        yield Stop(Word.HALTED, _decision(sight) or _sentence(reason), _opened(condition, {"halted"}))
    pause = condition.pause if condition else None
    if writer["state"] == Word.PAUSED or (pause if sight.writer is None else writer["paused"]):
        paused = writer["paused"] or {}
        operator = paused.get("operator") or (pause.operator if pause else "an operator")
        if pause is not None and pause.verified is False and pause.operator == operator:
            operator = f"{operator} ({pause.way})"
        reason = paused.get("reason") or (pause.reason if pause else "")
        end = "" if pause is None or pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M} UTC"
        began_at = pause.created_at if pause else None
        yield Stop(Word.PAUSED, f"{operator} paused it{end}: {_closed(reason)}", began_at)
    ban, left_ms = condition.ban if condition else None, writer["breaker"].get("remaining_ms", 0)
    is_asked = writer["breaker"].get("state") == "HALF_OPEN" and bool(_opened(condition, {"ban"}))
    if writer["state"] == Word.BANNED or is_asked or (ban if sight.writer is None else left_ms):
        known = [ban.began_at if ban else None, _opened(condition, {"ban"})]
        since = min((at for at in known if at is not None), default=None)
        until = ban.until if ban else sight.at + timedelta(milliseconds=left_ms) if left_ms else None
        why = _ASKED if is_asked else "OldHost refuses everything."
        yield Stop(Word.BANNED, ban.cause if ban else why, since, until)


def _decision(sight: Observations) -> str:
    """The decision about a halt that is not carried out yet; empty if there is none."""
    decision = sight.condition.decision if sight.condition else None
    return decision.sentence if decision else ""


def _with_decision(why: str, sight: Observations) -> str:
    return f"{why} {_decision(sight)}".rstrip()


def _sending(sight: Observations) -> Situation:
    """The writer sends; the worst open alert, if there is one, decides the next step."""
    writer = sight.writer or {}
    opened = sight.condition.alerts if sight.condition else ()
    alerts = [alert for alert in opened if alert.severity != "info"]
    alerts = alerts or [alert for alert in opened if alert.kind == "mapping-changed"]
    if writer["waiting"] or writer["in_flight"]:
        why = "Operations are being sent to OldHost, in order."
    else:
        why = "No accepted change is waiting to be sent."
    if at_risk := _at_risk(writer["forecast"], sight.promises):
        return at_risk
    if not alerts:
        return Situation(Word.SENDING, Tone.GOOD, why, "Nothing to do.")
    known = KINDS.get(alerts[0].kind)
    step = f"Look at the open alert {alerts[0].kind}" + (f": {known.next_step}" if known else ".")
    return Situation(Word.SENDING, Tone.WARNING if alerts[0].severity == "critical" else Tone.GOOD, why, step)


def _at_risk(forecast: dict[str, Any], promised: Promises) -> Situation | None:
    """Everything goes, but not fast enough for a promise."""
    late, waiting = forecast.get("late_emergencies", 0), forecast.get("emergencies", 0)
    if late or forecast["breaks_emergency"]:
        many = f"{late:,} of {quantity(waiting, 'emergency', 'emergencies')}" if late else "Emergencies"
        why = f"{many} will be late: more wait than OldHost takes in {promised.emergency}."
        step = "Call the people who wait for them. Ask the applications why they send so many."
        return Situation(Word.AT_RISK, Tone.BAD, why, step)
    if forecast["breaks_consistency"]:
        why = f"Changes will reach OldHost later than the promised {promised.consistency}."
        step = "See the plan from now, and let the applications send less."
        return Situation(Word.AT_RISK, Tone.WARNING, why, step)
    return None


def _stalled(sight: Observations) -> Situation | None:
    """Nothing has got through for a while, says an open alert, and why: that counts, not what is tried just now."""
    opened = sight.condition.alerts if sight.condition else ()
    alerts = [alert for alert in opened if alert.kind in _STALLS and alert.severity == "critical"]
    if not alerts:
        return None
    first = min(alerts, key=lambda alert: _STALLS.index(alert.kind))
    why = _with_decision(_sentence(first.message), sight)
    # The reason that the alert has does not change with each attempt, as the writer's state does.
    reason = first.message.partition("(")[2].partition(":")[0]
    step = _named(_CONNECTS[reason][1], sight) if reason in _BY_SETTINGS else KINDS[first.kind].next_step
    return Situation(Word.WAITING, Tone.BAD, why, step, first.created_at)


def _waiting(sight: Observations, state: str) -> Situation:
    writer = sight.writer or {}
    if state in _WAITS:
        why, step, passes = _WAITS[state]
    else:
        waiting_for = writer.get("session", {}).get("waiting_for", "")
        nothing = "No session with OldHost is open yet.", _NOTHING, True
        why, step, passes = _CONNECTS.get(waiting_for, nothing)
    step = _named(step, sight)
    return Situation(Word.WAITING, Tone.CALM if passes else Tone.WARNING, _with_decision(why, sight), step)


def _named(step: str, sight: Observations) -> str:
    return step.format(**{field: sight.called(field) for field in _NAMED})


def _since(sight: Observations, word: Word) -> datetime | None:
    """A sending writer sends since its session opened, a waiting one waits since the last session ended; None if the
    workers have not reported it.
    """
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
    """`text` with a full stop at its end."""
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…")) or not text else f"{text}."
