"""The first line of the console: one word, why, since when, and what to do, whatever part is away."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oldhost_sync.api.situation import Sight, Tone, Word, judge
from oldhost_sync.policy.alert_kinds import KINDS
from oldhost_sync.store.alerts import RaisedAlert
from oldhost_sync.store.audit import AuditedAct
from oldhost_sync.store.views.host_condition import HostCondition
from oldhost_sync.store.views.session_list import SessionView

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=7)


def a_writer(state: str = "SENDING", **more: Any) -> dict[str, Any]:
    return {
        "state": state,
        "paused": None,
        "breaker": {"state": "CLOSED", "reason": "", "remaining_ms": 0},
        "session": {"waiting_for": ""},
        "lanes": {"EMERGENCY": {"depth": 0}},
        "forecast": {"breaks_emergency": False, "breaks_consistency": False},
        "waiting": 3,
        "in_flight": 0,
        **more,
    }


def an_alert(kind: str) -> RaisedAlert:
    told = (1, "h", kind, kind, "critical", "m", 1, None, EARLIER)
    return RaisedAlert(*told, *[None] * (len(fields(RaisedAlert)) - len(told)))


def a_condition(
    *alerts: str, pause: AuditedAct | None = None, session: SessionView | None = None, **ledger: Any
) -> HostCondition:
    row = {"halted": None, "banned_at": None} | ledger
    return HostCondition(row, pause, [an_alert(kind) for kind in alerts], len(alerts), [], None, session)


def test_it_sends_and_there_is_nothing_to_do() -> None:
    said = judge(Sight(NOW, a_writer(), condition=a_condition()))
    assert (said.word, said.tone, said.next_step) == (Word.SENDING, Tone.GOOD, "Nothing to do.")


def test_it_sends_since_its_session_was_opened() -> None:
    session = SessionView(3, opened_at=EARLIER)
    assert judge(Sight(NOW, a_writer(), condition=a_condition(session=session))).since == EARLIER


def test_it_waits_since_the_last_session_ended() -> None:
    session = SessionView(3, opened_at=EARLIER - timedelta(hours=1), ended_at=EARLIER)
    assert judge(Sight(NOW, a_writer("CONNECTING"), condition=a_condition(session=session))).since == EARLIER


def test_a_session_whose_worker_told_of_its_end_only_says_nothing_about_the_one_that_sends() -> None:
    session = SessionView(3, opened_at=EARLIER - timedelta(hours=1), ended_at=EARLIER)
    assert judge(Sight(NOW, a_writer(), condition=a_condition(session=session))).since is None


def test_sending_is_a_worry_while_a_promise_will_break() -> None:
    forecast = {"breaks_emergency": False, "breaks_consistency": True}
    said = judge(Sight(NOW, a_writer(forecast=forecast), condition=a_condition()))
    assert (said.word, said.tone) == (Word.SENDING, Tone.WARNING)


def test_sending_with_an_open_alert_says_what_to_do_about_it() -> None:
    said = judge(Sight(NOW, a_writer(), condition=a_condition("goes-nowhere")))
    assert (said.word, said.tone) == (Word.SENDING, Tone.WARNING)
    assert KINDS["goes-nowhere"].next_step in said.next_step


def test_a_ban_says_since_when_and_until_when() -> None:
    breaker = {"state": "OPEN", "reason": "replay of nonce 7", "remaining_ms": 480_000}
    said = judge(Sight(NOW, a_writer("BANNED", breaker=breaker), condition=a_condition(banned_at=EARLIER)))
    assert (said.word, said.since, said.until) == (Word.BANNED, EARLIER, NOW + timedelta(minutes=8))
    assert said.why == "Replay of nonce 7."


def test_during_a_ban_the_people_behind_emergencies_are_to_be_called() -> None:
    writer = a_writer("BANNED", lanes={"EMERGENCY": {"depth": 2}})
    assert "waiting emergencies (2)" in judge(Sight(NOW, writer, condition=a_condition())).next_step


def test_a_pause_names_who_and_why_and_since_when() -> None:
    act = AuditedAct(1, "h", "pause", "anna", "quiet", None, None, EARLIER)
    writer = a_writer("PAUSED", paused={"operator": "anna", "reason": "quiet"})
    said = judge(Sight(NOW, writer, condition=a_condition(pause=act)))
    assert (said.word, said.why, said.since) == (Word.PAUSED, "anna paused it: quiet.", EARLIER)


def test_a_halt_asks_for_a_decision() -> None:
    writer = a_writer("HALTED")
    said = judge(Sight(NOW, writer, condition=a_condition("halted", halted="OldHost expects a later nonce")))
    assert (said.word, said.tone, said.since) == (Word.HALTED, Tone.BAD, EARLIER)
    assert "resolve" in said.next_step


@pytest.mark.parametrize("state", ["CONNECTING", "REBUILDING", "RENEWING", "BUSY", "UNSTEADY", "UNREADABLE", "NEW"])
def test_whatever_else_the_writer_says_is_a_wait_with_a_reason(state: str) -> None:
    said = judge(Sight(NOW, a_writer(state), condition=a_condition()))
    assert said.word is Word.WAITING
    assert said.why
    assert said.next_step


@pytest.mark.parametrize("waiting_for", ["settle", "connection", "keep-alive", "database", "fenced"])
def test_a_wait_for_a_session_says_what_it_waits_for(waiting_for: str) -> None:
    plain = judge(Sight(NOW, a_writer("CONNECTING"), condition=a_condition()))
    said = judge(Sight(NOW, a_writer("CONNECTING", session={"waiting_for": waiting_for}), condition=a_condition()))
    assert said.why != plain.why


@pytest.mark.parametrize("kind", ["writer-missing", "writer-failing", "no-worker", "writer-away"])
def test_no_answer_is_no_writer_with_the_reason_and_since_when(kind: str) -> None:
    sight = Sight(NOW, None, "nobody answers", kind, a_condition("writer-closed", "dead-letter"))
    said = judge(sight)
    assert (said.word, said.tone, said.why, said.since) == (Word.NO_WRITER, Tone.BAD, "Nobody answers.", EARLIER)
    assert said.next_step


def test_without_a_writer_the_database_still_tells_of_a_halt() -> None:
    said = judge(Sight(NOW, None, "nobody answers", "no-worker", a_condition(halted="nonces differ")))
    assert "halted: nonces differ." in said.why


def test_without_the_database_nothing_goes_whatever_the_writer_says() -> None:
    said = judge(Sight(NOW, a_writer(), database_away="connection refused"))
    assert (said.word, said.tone) == (Word.WAITING, Tone.BAD)
    assert "MariaDB is away: connection refused." in said.why


def test_without_anything_both_reasons_are_told() -> None:
    said = judge(Sight(NOW, None, "nobody answers", database_away="connection refused"))
    assert said.word is Word.NO_WRITER
    assert "connection refused." in said.why
    assert "nobody answers." in said.why
