"""Alerts: their texts, when each closes, and the list of them that is recorded next.

A cause (its dedupe key) has one open alert at a time. One list of alerts is recorded at a time; those that arise in the
meantime are coalesced by cause. A thousand emergencies that can't be sent have one cause and one alert, with a count.
Each alert has a sequence, by which the store sees which of two is later, even if they arrive in the wrong order. Alerts
that a run has not recorded when it ends are recorded by the next run.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from oldhost_sync.policy.changes import ChangeRef, EntityKey
from oldhost_sync.policy.machine.actions import RaiseAlert, RecordAlerts
from oldhost_sync.policy.plain_text import instant
from oldhost_sync.policy.rules.alert_kinds import Severity, Told
from oldhost_sync.policy.rules.operator_act import OperatorAct
from oldhost_sync.policy.tuning import ALERT_GROWS_MS, ALERTS_AT_ONCE_MAX, DEAD_LETTER_ALERTS_MAX

GOES_NOWHERE = "goes-nowhere"
DEAD_LETTERS = "dead-letters"


class Alerts:
    """Collects alerts until they are taken. Alerts that are open: `emergencies_alert`, cause, count and time of the
    last one about emergencies that can't be sent; `grouped`, count and time of the one for many dead letters; `stuck`,
    the change that everything waits for (0: none).
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.stuck = 0
        self.under_way: list[RaiseAlert] = []
        self.emergencies_alert: tuple[str, int, int] | None = None
        self.grouped: tuple[int, int] | None = None
        self._halts: list[OperatorAct] = []
        self._waiting: dict[tuple[str, bool], RaiseAlert] = {}

    def take(self, now_ms: int, *, draining: bool) -> list[OperatorAct | RecordAlerts]:
        """What to do now: halts at once, alerts when the last list is recorded."""
        taken: list[OperatorAct | RecordAlerts] = [*self._halts]
        self._halts = []
        if self._waiting and not self.under_way and not draining:
            first = list(self._waiting)[:ALERTS_AT_ONCE_MAX]
            self.under_way = [self._numbered(self._waiting.pop(key), now_ms) for key in first]
            taken.append(RecordAlerts(tuple(self.under_way)))
        return taken

    def recorded(self) -> None:
        """The list is recorded."""
        self.under_way = []

    def not_recorded(self) -> None:
        """Record the list again, before what has arisen since; what that replaces is left out."""
        again = {(alert.dedupe_key, alert.close): alert for alert in self.under_way}
        again = {key: alert for key, alert in again.items() if key not in self._waiting}
        self._waiting = {**again, **self._waiting}
        self.under_way = []

    def unrecorded(self) -> list[RaiseAlert]:
        """The alerts that the next run has to record, in order. One under way may be recorded twice; it counts once."""
        return [*self.under_way, *self._waiting.values()]

    def add(self, *alerts: RaiseAlert) -> None:
        for alert in alerts:
            self._keep(alert)

    def record_halt(self, reason: str, never_taken: int | None = None, epoch: int = 0) -> None:
        """Make a halt durable in the ledger, where it was not found by the ledger itself: an act of the writer's own.

        `never_taken`: the change whose first send OldHost called a replay; it must not count as applied. `epoch`: that
        of the session whose send showed it; 0: none.
        """
        halt = OperatorAct("", "halt", "writer", reason, never_taken, epoch=epoch)
        if halt not in self._halts:
            self._halts.append(halt)

    # ------------------------------------------------------------------------------------------ OldHost and the session

    def banned(self, until_ms: int) -> None:
        text = (
            f"OldHost banned us, at least until {clock(until_ms)}: no change can reach it before, not even emergencies."
        )
        self._raise("ban", "critical", text, "ban")

    def halted(self, reason: str) -> None:
        advice = "" if "resolve" in reason else " Find out why, then resolve."
        text = f"Sending is halted: {reason.rstrip('.')}.{advice}"
        self._raise("halted", "critical", text, "halt")

    def no_session(self, attempts: int, reason: str) -> None:
        text = f"No session with OldHost after {attempts} attempts ({reason}); the writer keeps trying."
        self._raise("no-session", "critical", text, "session")

    def session_is_back(self) -> None:
        self._close("session")

    def goes_nowhere(self, ref: ChangeRef, sessions: int) -> None:
        text = (
            f"{sessions} sessions in a row could not find out whether OldHost applied change {ref.change_id} "
            f"({ref.entity_type} {ref.entity_id}, {ref.event_type}). It has the next nonce, so everything waits behind "
            "it."
        )
        self._raise("goes-nowhere", "critical", text, GOES_NOWHERE, ref.change_id)
        self.stuck = ref.change_id

    def waits_apart(self, change_id: int, entity: EntityKey, tries: int) -> None:
        text = (
            f"OldHost refused change {change_id} ({entity.entity_type} {entity.entity_id}) {tries} times without using "
            "its nonce. The others are sent; this one and the later ones of its entity wait, and are tried again after "
            f"growing pauses. `change show` has OldHost's words. `dead-letters retry {change_id}` tries it at once, "
            f"`dead-letters discard {change_id}` gives it up. After a few tries more it becomes a dead letter."
        )
        self._raise("goes-nowhere", "critical", text, GOES_NOWHERE, change_id)
        self.stuck = change_id

    def answers_are_lost(self, sends: int, reason: str) -> None:
        text = (
            f"{sends} sends in a row brought no readable answer ({reason or 'the worker gave no reason'}). The result "
            "of each operation is known only after the settle time, so OldHost gets far fewer operations than it could."
        )
        self._raise("answers-lost", "critical", text, "answers")

    def answers_are_back(self) -> None:
        self._close("answers")

    def sessions_break(self, sessions: int, reason: str) -> None:
        text = f"OldHost's answers ended {sessions} sessions within ten minutes; the last one: {reason}."
        self._raise("sessions-broken", "warning", text, "sessions-broken")

    def sessions_hold(self) -> None:
        self._close("sessions-broken")

    def ban_or_halt_is_over(self) -> None:
        self._close("ban")
        self._close("halt")

    # ---------------------------------------------------------------------------------------------------------- changes

    def dead_letter(self, ref: ChangeRef) -> None:
        text = (
            f"OldHost rejected change {ref.change_id} ({ref.entity_type} {ref.entity_id}, {ref.event_type}). "
            "Later TXN changes of this entity are held: retry or discard it."
        )
        self._raise("dead-letter", "warning", text, f"dead:{ref.change_id}", ref.change_id)

    def dead_letter_is_decided(self, change_id: int) -> None:
        self._close(f"dead:{change_id}")

    def nothing_is_stuck(self) -> None:
        if self.stuck:
            self.stuck = 0
            self._close(GOES_NOWHERE)

    def has_its_fate(self, change_id: int) -> None:
        if change_id == self.stuck:
            self.nothing_is_stuck()

    def strays(self, count: int, last_id: int, now_ms: int) -> None:
        text = f"The sweep found {count} outstanding changes that the writer did not hold; it sends them now."
        self._raise("strays", "info", text, f"strays:{last_id}:{now_ms}", count=count)

    def unreadable(self, what: str, dedupe_key: str) -> None:
        self._raise("unreadable-signal", "warning", what, dedupe_key)

    # ------------------------------------------------------------------------------------------------------ emergencies

    def emergencies_wait(self, cause: str, why: str, count: int, between: tuple[int, int], now_ms: int) -> None:
        """`count` emergencies can't reach OldHost for this cause. Raised at once, then updated as the count grows."""
        if self.emergencies_alert is not None and self.emergencies_alert[0] != cause:
            self.emergencies_go()
        if self.emergencies_alert is not None:
            _, alerted, at_ms = self.emergencies_alert
            if count <= alerted or now_ms < at_ms + ALERT_GROWS_MS:
                return
        self.emergencies_alert = (cause, count, now_ms)
        text = f"{count} EMERGENCY change{'s' * (count != 1)} can't reach OldHost now: {why.rstrip('.')}."
        text += f" The oldest is change {between[0]}, the newest {between[1]}."
        self._keep(RaiseAlert("emergency-blocked", "critical", text, f"emergencies:{cause}", between[0], count=count))

    def emergencies_go(self) -> None:
        """The cause is over, or no emergency waits."""
        if self.emergencies_alert is not None:
            self._close(f"emergencies:{self.emergencies_alert[0]}")
            self.emergencies_alert = None

    # ----------------------------------------------------------------------------------------------------- dead letters

    def rejected(self, ref: ChangeRef, count: int, now_ms: int) -> None:
        """The first few undecided dead letters have an alert each, all further ones share one. What people see is
        grouped by OldHost's reason where it is recorded (`activities/alerts.py`).
        """
        if count <= DEAD_LETTER_ALERTS_MAX:
            self.dead_letter(ref)
            return
        if self.grouped is not None and now_ms < self.grouped[1] + ALERT_GROWS_MS:
            return
        self.grouped = (count, now_ms)
        text = (
            f"{count} changes that OldHost rejected wait for a decision, the newest is {ref.change_id} "
            f"({ref.entity_type} {ref.entity_id}, {ref.event_type}). List them with `oldhost-sync dead-letters list`, "
            "then retry or discard them."
        )
        self._raise("dead-letters", "critical", text, DEAD_LETTERS)

    def decided(self, change_id: int, count: int) -> None:
        """One is decided; `count` are left."""
        self.dead_letter_is_decided(change_id)
        if self.grouped is not None and count == 0:
            self.grouped = None
            self._close(DEAD_LETTERS)

    # --------------------------------------------------------------------------------------------------------- progress

    def no_progress(self, seconds: int, reason: str, emergencies: int) -> None:
        urgent = f" Emergencies that wait: {emergencies}." if emergencies else ""
        text = (
            f"No change has reached OldHost for {seconds} s although some could be sent ({reason}). "
            f"The writer keeps trying.{urgent}"
        )
        self._raise("no-progress", "critical", text, "no-progress")

    def progress_is_back(self) -> None:
        self._close("no-progress")

    def disproved_by_a_session(self) -> None:
        """A session is open: close what a run that left nothing but MariaDB's rows may have opened before it ended."""
        self.session_is_back()
        self.ban_or_halt_is_over()
        self.answers_are_back()
        self.progress_is_back()
        self._close(GOES_NOWHERE)
        for cause in ("pause", "ban", "halt"):
            self._close(f"emergencies:{cause}")

    # ---------------------------------------------------------------------------------------------------------- keeping

    def _raise(
        self, kind: Told, severity: Severity, message: str, key: str, change_id: int | None = None, *, count: int = 1
    ) -> None:
        self._keep(RaiseAlert(kind, severity, message, key, change_id, count=count))

    def _close(self, dedupe_key: str) -> None:
        self._keep(RaiseAlert("", "info", "", dedupe_key, close=True))

    def _keep(self, alert: RaiseAlert) -> None:
        """Keep only the last opening and the last closing of each cause, in their order."""
        key = (alert.dedupe_key, alert.close)
        self._waiting.pop(key, None)
        self._waiting[key] = alert

    def number_above(self, sequence: int) -> None:
        """The store has numbers up to this: an earlier run's, perhaps by a clock that was ahead of today's."""
        self.sequence = max(self.sequence, sequence)

    def _numbered(self, alert: RaiseAlert, now_ms: int) -> RaiseAlert:
        if alert.sequence:
            return alert
        self.sequence = max(self.sequence + 1, now_ms)
        return replace(alert, sequence=self.sequence)


def clock(at_ms: int) -> str:
    """An instant as text, with its date: a ban may end tomorrow."""
    return instant(datetime.fromtimestamp(at_ms / 1000, UTC))
