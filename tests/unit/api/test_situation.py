"""The first line of the console: one word, why, since when, and what to do, whatever part is away."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oldhost_sync.api.situation import Observations, Tone, Word, judge
from oldhost_sync.policy.machine.progress import STATES
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.alerts import RaisedAlert
from oldhost_sync.store.audit import AuditEntry
from oldhost_sync.store.read.halt import HaltDecision
from oldhost_sync.store.read.host_condition import Ban, HostCondition
from oldhost_sync.store.read.sessions import HostSession, Process

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=7)
LATER = NOW + timedelta(minutes=8)
BAN = Ban(EARLIER, LATER, "OldHost does not say why.")
DECISION = HaltDecision("anna", "adopt", EARLIER)
IN_A_BAN = {"state": "HALTED", "reason": "nonces differ", "remaining_ms": 480_000}


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
    told = (1, "h", kind, kind, "info" if kind == "mapping-changed" else "critical", "m", 1, None, EARLIER)
    return RaisedAlert(*told, *[None] * (len(fields(RaisedAlert)) - len(told)))


def a_condition(
    *alerts: str,
    pause: AuditEntry | None = None,
    session: HostSession | None = None,
    ban: Ban | None = None,
    decision: HaltDecision | None = None,
    **ledger: Any,
) -> HostCondition:
    row = {"halted": None, "resolve_mode": None} | ledger
    opened = sorted(map(an_alert, alerts), key=lambda alert: alert.severity)
    return HostCondition(row, pause, opened, len(alerts), [], None, session, ban, decision)


def test_it_sends_and_there_is_nothing_to_do() -> None:
    said = judge(Observations(NOW, a_writer(), condition=a_condition()))
    assert (said.word, said.tone, said.next_step) == (Word.SENDING, Tone.GOOD, "Nothing to do.")


def test_a_new_mapping_offers_a_resync_unless_there_is_something_worse() -> None:
    offered = judge(Observations(NOW, a_writer(), condition=a_condition("mapping-changed")))
    assert (offered.word, offered.tone) == (Word.SENDING, Tone.GOOD)
    assert "request a resync" in offered.next_step
    worse = judge(Observations(NOW, a_writer(), condition=a_condition("mapping-changed", "no-relay")))
    assert "no-relay" in worse.next_step


@pytest.mark.parametrize(("breaks", "why"), [("emergency", "takes in 5 s."), ("consistency", "the promised 1 h.")])
def test_what_will_be_late_is_told_by_the_hosts_promise(breaks: str, why: str) -> None:
    forecast = {"breaks_emergency": False, "breaks_consistency": False, f"breaks_{breaks}": True}
    promised = Promises(consistency_ms=3_600_000, emergency_ms=5_000)
    said = judge(Observations(NOW, a_writer(forecast=forecast), condition=a_condition(), promises=promised))
    assert (said.word, why in said.why) == (Word.AT_RISK, True)


def test_it_sends_since_its_session_was_opened() -> None:
    session = HostSession(3, opened_at=EARLIER)
    assert judge(Observations(NOW, a_writer(), condition=a_condition(session=session))).since == EARLIER


def test_a_pause_under_a_name_that_nobody_has_checked_says_so() -> None:
    pause = AuditEntry(1, "h", "pause", "anna", "quiet", None, None, EARLIER, "temporal", verified=False)
    said = judge(Observations(NOW, a_writer("PAUSED"), condition=a_condition(pause=pause)))
    assert said.why == "anna (temporal, not verified) paused it: quiet."


def test_a_pause_that_ends_by_itself_says_when_and_that_nothing_need_be_done() -> None:
    detail = {"until_ms": 1_800_000_000_000}
    pause = AuditEntry(1, "h", "pause", "anna", "quiet", None, detail, EARLIER, "api", verified=True)
    writer = a_writer("PAUSED", paused={"operator": "anna", "reason": "quiet", "remaining_ms": 60_000})
    said = judge(Observations(NOW, writer, condition=a_condition(pause=pause)))
    assert said.why == "anna paused it until 2027-01-15 08:00 UTC: quiet."
    assert said.next_step == "Nothing to do: the pause ends by itself. Changes are still accepted."


def test_it_waits_since_the_last_session_ended() -> None:
    session = HostSession(3, opened_at=EARLIER - timedelta(hours=1), ended_at=EARLIER)
    assert judge(Observations(NOW, a_writer("CONNECTING"), condition=a_condition(session=session))).since == EARLIER


def test_a_session_whose_worker_told_of_its_end_only_says_nothing_about_the_one_that_sends() -> None:
    session = HostSession(3, opened_at=EARLIER - timedelta(hours=1), ended_at=EARLIER)
    assert judge(Observations(NOW, a_writer(), condition=a_condition(session=session))).since is None


def test_sending_is_a_worry_while_a_promise_will_break() -> None:
    forecast = {"breaks_emergency": False, "breaks_consistency": True}
    said = judge(Observations(NOW, a_writer(forecast=forecast), condition=a_condition()))
    assert (said.word, said.tone) == (Word.AT_RISK, Tone.WARNING)


def test_emergencies_that_will_be_late_are_counted_in_the_first_sentence() -> None:
    forecast = {"breaks_emergency": True, "breaks_consistency": False, "emergencies": 145, "late_emergencies": 78}
    said = judge(Observations(NOW, a_writer(forecast=forecast), condition=a_condition()))
    assert (said.word, said.tone) == (Word.AT_RISK, Tone.BAD)
    assert said.why.startswith("78 of 145 emergencies will be late")


def test_sending_with_an_open_alert_says_what_to_do_about_it() -> None:
    said = judge(Observations(NOW, a_writer(), condition=a_condition("answers-lost")))
    assert (said.word, said.tone) == (Word.SENDING, Tone.WARNING)
    assert KINDS["answers-lost"].next_step in said.next_step


@pytest.mark.parametrize("kind", ["goes-nowhere", "no-progress", "no-session"])
def test_while_nothing_gets_through_each_moment_of_the_attempts_says_the_same(kind: str) -> None:
    """A session is waited for, being opened, open for a moment, and lost again."""
    condition = a_condition("dead-letters", kind)
    connecting = [a_writer("CONNECTING", session={"waiting_for": each}) for each in ("connection", "connection", "")]
    for writer in (*connecting, a_writer("SENDING", in_flight=1)):
        said = judge(Observations(NOW, writer, condition=condition))
        assert (said.word, said.tone, said.since) == (Word.WAITING, Tone.BAD, EARLIER)
        assert said.next_step == KINDS[kind].next_step
        assert said.why.endswith("M.")


@pytest.mark.parametrize("kinds", [("no-progress", "database-far"), ("database-far", "no-progress")])
def test_of_several_stalls_the_one_that_is_the_cause_of_the_others_is_told(kinds: tuple[str, str]) -> None:
    said = judge(Observations(NOW, a_writer(), condition=a_condition(*kinds)))
    assert said.next_step == KINDS["database-far"].next_step


def test_while_oldhost_is_asked_whether_the_ban_is_over_the_ban_is_not_over() -> None:
    asked = {"state": "HALF_OPEN", "reason": "", "remaining_ms": 0}
    said = judge(Observations(NOW, a_writer("CONNECTING", breaker=asked), condition=a_condition("ban")))
    assert (said.word, said.since, said.until) == (Word.BANNED, EARLIER, None)
    assert said.why == "The ban may be over: OldHost is being asked."


def test_that_oldhost_is_asked_early_changes_nothing_of_the_ban_that_it_told_of() -> None:
    asked = {"state": "HALF_OPEN", "reason": "", "remaining_ms": 0}
    said = judge(Observations(NOW, a_writer("CONNECTING", breaker=asked), condition=a_condition("ban", ban=BAN)))
    assert (said.word, said.since, said.until, said.why) == (Word.BANNED, EARLIER, LATER, BAN.cause)


def test_a_ban_says_since_when_and_until_when_and_why_as_far_as_the_ledger_knows() -> None:
    said = judge(Observations(NOW, a_writer("BANNED"), condition=a_condition(ban=BAN)))
    assert (said.word, said.since, said.until) == (Word.BANNED, EARLIER, LATER)
    assert said.why == "OldHost does not say why."


def test_a_ban_that_the_ledger_took_to_be_over_began_when_it_was_told() -> None:
    said = judge(Observations(NOW, a_writer("BANNED"), condition=a_condition("ban", ban=replace(BAN, began_at=NOW))))
    assert said.since == EARLIER


def test_without_the_ledger_s_word_a_ban_ends_when_the_writer_says() -> None:
    breaker = {"state": "OPEN", "reason": "banned by OldHost", "remaining_ms": 480_000}
    said = judge(Observations(NOW, a_writer("BANNED", breaker=breaker), condition=a_condition()))
    assert (said.word, said.since, said.until) == (Word.BANNED, None, LATER)


def test_a_halt_in_a_ban_shows_both() -> None:
    sight = Observations(
        NOW, a_writer("HALTED", breaker=IN_A_BAN), condition=a_condition(ban=BAN, halted="nonces differ")
    )
    said = judge(sight)
    assert said.words == (Word.HALTED, Word.BANNED)
    assert (said.why, said.also[0].why) == ("Nonces differ.", "OldHost does not say why.")
    assert (said.also[0].since, said.also[0].until) == (EARLIER, LATER)
    assert "decide" in said.next_step
    assert "when the ban is over" in said.next_step


def test_a_pause_in_a_halt_is_to_be_ended_too() -> None:
    writer = a_writer("HALTED", paused={"operator": "anna", "reason": "quiet"})
    said = judge(Observations(NOW, writer, condition=a_condition(halted="nonces differ")))
    assert (said.words, said.tone) == ((Word.HALTED, Word.PAUSED), Tone.BAD)
    assert "resume" in said.next_step


def test_a_pause_in_a_ban_does_not_hide_it() -> None:
    writer = a_writer("PAUSED", paused={"operator": "anna", "reason": "quiet"}, breaker=IN_A_BAN)
    assert judge(Observations(NOW, writer, condition=a_condition(ban=BAN))).words == (Word.PAUSED, Word.BANNED)


def test_during_a_ban_the_people_behind_emergencies_are_to_be_called() -> None:
    writer = a_writer("BANNED", lanes={"EMERGENCY": {"depth": 2}})
    assert "waiting emergencies (2)" in judge(Observations(NOW, writer, condition=a_condition())).next_step


def test_a_pause_names_who_and_why_and_since_when() -> None:
    act = AuditEntry(1, "h", "pause", "anna", "quiet", None, None, EARLIER)
    writer = a_writer("PAUSED", paused={"operator": "anna", "reason": "quiet"})
    said = judge(Observations(NOW, writer, condition=a_condition(pause=act)))
    assert (said.word, said.why, said.since) == (Word.PAUSED, "anna paused it: quiet.", EARLIER)


def test_a_halt_asks_for_a_decision() -> None:
    writer = a_writer("HALTED")
    said = judge(Observations(NOW, writer, condition=a_condition("halted", halted="OldHost expects a later nonce")))
    assert (said.word, said.tone, said.since) == (Word.HALTED, Tone.BAD, EARLIER)
    assert "adopt" in said.next_step


def test_a_halt_that_is_decided_waits_for_the_writer_and_for_nobody_s_decision() -> None:
    said = judge(Observations(NOW, a_writer("HALTED"), condition=a_condition("halted", decision=DECISION)))
    assert said.why.startswith("anna decided about the halt at 2026-11-22 02:53:00 UTC: adopt.")
    assert said.next_step == "Nothing to do."


def test_in_a_ban_a_halt_that_is_decided_is_none_any_more() -> None:
    condition = a_condition(ban=BAN, decision=DECISION, halted="then decide", resolve_mode="adopt")
    said = judge(Observations(NOW, a_writer("BANNED"), condition=condition))
    assert said.words == (Word.BANNED,)
    assert "anna decided" in said.why
    assert "then decide" not in said.why + said.next_step


@pytest.mark.parametrize("state", ["CONNECTING", "REBUILDING", "RENEWING", *STATES.values(), "NEW"])
def test_whatever_else_the_writer_says_is_a_wait_with_a_reason(state: str) -> None:
    said = judge(Observations(NOW, a_writer(state), condition=a_condition()))
    assert said.word is Word.WAITING
    assert said.why
    assert said.next_step


@pytest.mark.parametrize("state", list(STATES.values()))
def test_each_of_oldhosts_faults_has_words_of_its_own(state: str) -> None:
    plain = judge(Observations(NOW, a_writer("CONNECTING"), condition=a_condition()))
    said = judge(Observations(NOW, a_writer(state), condition=a_condition()))
    assert said.why != plain.why
    assert said.tone is Tone.WARNING


@pytest.mark.parametrize(
    ("state", "waiting_for", "fields"),
    [
        ("UNTRUSTED", "", "url ca_file"),
        ("CONNECTING", "tls", "url ca_file"),
        ("SILENT", "", "request_timeout_seconds settle_seconds"),
        ("CONNECTING", "silent", "request_timeout_seconds settle_seconds"),
        ("UNAUTHORIZED", "", "auth_file cert_file"),
        ("CONNECTING", "credentials", "url auth_file"),
    ],
)
def test_what_to_change_is_called_by_its_name_for_the_host(state: str, waiting_for: str, fields: str) -> None:
    writer = a_writer(state, session={"waiting_for": waiting_for})
    plain = judge(Observations(NOW, writer, condition=a_condition())).next_step
    in_file = judge(Observations(NOW, writer, condition=a_condition(), called="hosts.n.{}".format)).next_step
    assert "SYNC_" in plain
    assert "SYNC_" not in in_file
    assert all(f"hosts.n.{field}" in in_file for field in fields.split())


@pytest.mark.parametrize(
    ("reason", "said"), [("tls", "hosts.n.ca_file"), ("silent", "hosts.n.settle_seconds"), ("mapping", "package")]
)
def test_a_standstill_that_a_setting_ends_names_it(reason: str, said: str) -> None:
    alert = replace(an_alert("no-progress"), message=f"No change has reached OldHost ({reason}: why).")
    condition = replace(a_condition("no-progress"), alerts=[alert])
    sight = Observations(NOW, a_writer("CONNECTING"), condition=condition, called="hosts.n.{}".format)
    assert said in judge(sight).next_step


@pytest.mark.parametrize(
    "waiting_for", ["settle", "connection", "in-use", "keep-alive", "database", "mapping", "fenced"]
)
def test_a_wait_for_a_session_says_what_it_waits_for(waiting_for: str) -> None:
    plain = judge(Observations(NOW, a_writer("CONNECTING"), condition=a_condition()))
    said = judge(
        Observations(NOW, a_writer("CONNECTING", session={"waiting_for": waiting_for}), condition=a_condition())
    )
    assert said.why != plain.why


@pytest.mark.parametrize("kind", ["writer-missing", "paused-in-temporal", "writer-failing", "no-worker", "writer-away"])
def test_no_answer_is_no_writer_with_the_reason_and_since_when(kind: str) -> None:
    sight = Observations(NOW, None, "nobody answers", kind, a_condition("writer-closed", "dead-letter"))
    said = judge(sight)
    assert (said.word, said.tone, said.why, said.since) == (Word.NO_WRITER, Tone.BAD, "Nobody answers.", EARLIER)
    assert said.next_step


def a_worker(seen_at: datetime, *, at_work: bool = False, has_left: bool = False) -> Process:
    return Process("w1", seen_at, at_work, has_left)


@pytest.mark.parametrize(
    ("has_left", "said"),
    [
        (True, "No worker is at work: w1 left at 2026-11-22 02:53:00 UTC."),
        (False, "Worker w1 is silent since 2026-11-22 02:53:00 UTC, and no other is at work"),
    ],
)
def test_without_a_writer_or_an_alert_it_is_told_since_when_no_worker_is_at_work(has_left: bool, said: str) -> None:
    condition = replace(a_condition(), workers=[a_worker(EARLIER, has_left=has_left)])
    found = judge(Observations(NOW, None, "nobody answers", "no-worker", condition))
    assert found.since == EARLIER
    assert said in found.why
    assert found.next_step.startswith("Start a worker" if has_left else "Restart worker w1")


def test_while_a_worker_is_at_work_it_is_named_and_since_is_what_was_seen() -> None:
    condition = replace(a_condition(), workers=[a_worker(NOW, at_work=True), a_worker(EARLIER)])
    found = judge(Observations(NOW, None, "nobody answers", "writer-away", condition, writer_away_since=EARLIER))
    assert "Worker w1 was at work at 2026-11-22 03:00:00 UTC." in found.why
    assert found.since == EARLIER


def test_a_worker_that_temporal_misses_was_at_work_when_it_told_of_itself_last() -> None:
    condition = replace(a_condition(), workers=[a_worker(EARLIER, at_work=True)])
    assert judge(Observations(NOW, None, "no worker takes its task", "no-worker", condition)).since == EARLIER
    assert judge(Observations(NOW, None, "nobody answers", "writer-away", condition)).since is None


def test_of_several_signs_that_there_is_no_writer_the_oldest_counts() -> None:
    condition = replace(a_condition("no-worker"), workers=[a_worker(EARLIER - timedelta(seconds=9))])
    found = judge(Observations(NOW, None, "nobody answers", "no-worker", condition, writer_away_since=NOW))
    assert found.since == EARLIER - timedelta(seconds=9)


def test_what_temporal_s_records_advise_is_the_next_step() -> None:
    """The tasks go to a version of another worker deployment: no start of a worker and no new run changes that."""
    condition = replace(a_condition("no-worker"), workers=[a_worker(NOW, at_work=True)])
    cure = "`temporal worker deployment set-current-version …` gives them back to our workers"
    said = judge(Observations(NOW, None, "its tasks go to others", "no-worker", condition, writer_step=cure))
    assert said.next_step == f"{cure}."
    assert said.why.startswith("Its tasks go to others.")


def test_without_the_database_it_is_told_since_when_if_that_was_seen() -> None:
    assert judge(Observations(NOW, a_writer(), database_away="refused", database_away_since=EARLIER)).since == EARLIER


def test_without_a_writer_the_database_still_tells_of_a_halt_a_pause_and_a_ban() -> None:
    act = AuditEntry(1, "h", "pause", "anna", "quiet", None, None, EARLIER)
    condition = a_condition(halted="nonces differ", pause=act, ban=BAN)
    said = judge(Observations(NOW, None, "nobody answers", "no-worker", condition))
    assert said.words == (Word.NO_WRITER, Word.HALTED, Word.PAUSED, Word.BANNED)
    assert [stop.why for stop in said.also] == ["Nonces differ.", "anna paused it: quiet.", BAN.cause]


def test_without_a_writer_a_halt_that_is_decided_asks_for_no_decision() -> None:
    condition = a_condition(decision=DECISION, halted="then decide", resolve_mode="adopt")
    said = judge(Observations(NOW, None, "nobody answers", "no-worker", condition))
    assert said.words == (Word.NO_WRITER,)
    assert "anna decided" in said.why
    assert "then decide" not in said.why + said.next_step


def test_without_the_database_nothing_goes_whatever_the_writer_says() -> None:
    said = judge(Observations(NOW, a_writer(), database_away="connection refused"))
    assert (said.word, said.tone) == (Word.WAITING, Tone.BAD)
    assert "MariaDB is away: connection refused." in said.why


def test_without_anything_both_reasons_are_told() -> None:
    said = judge(Observations(NOW, None, "nobody answers", database_away="connection refused"))
    assert said.word is Word.NO_WRITER
    assert "connection refused." in said.why
    assert "nobody answers." in said.why
