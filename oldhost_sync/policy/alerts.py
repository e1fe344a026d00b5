"""Alerts: their texts, and when each closes. A cause (its dedupe key) has one open alert at a time."""

from __future__ import annotations

from datetime import UTC, datetime

from oldhost_sync.policy.actions import RaiseAlert, RecordHalt
from oldhost_sync.policy.alert_kinds import Severity, Told
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.phrases import instant

GOES_NOWHERE = "goes-nowhere"


class Alerts:
    """Collects alerts until they are taken. Alerts that are open: `blocked`, for emergencies that can't be sent;
    `stuck`, for the change that everything waits for (0: none).
    """

    def __init__(self) -> None:
        self.blocked: list[int] = []
        self.stuck = 0
        self._pending: list[RaiseAlert | RecordHalt] = []

    def take(self) -> list[RaiseAlert | RecordHalt]:
        """What was collected since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def add(self, *alerts: RaiseAlert) -> None:
        self._pending += alerts

    def record_halt(self, reason: str, never_taken: int | None = None, epoch: int = 0) -> None:
        """Make a halt durable in the ledger, where it was not found by the ledger itself."""
        self._pending.append(RecordHalt(reason, never_taken, epoch))

    # ------------------------------------------------------------------------------------------ OldHost and the session

    def banned(self, until_ms: int) -> None:
        text = f"OldHost banned us until {clock(until_ms)}: no change can reach it before, not even emergencies."
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

    def answers_are_lost(self, sends: int, reason: str) -> None:
        text = (
            f"{sends} sends in a row brought no readable answer ({reason or 'the worker gave no reason'}). The result "
            "of each operation is known only after the settle time, so OldHost gets far fewer operations than it could."
        )
        self._raise("answers-lost", "critical", text, "answers")

    def answers_are_back(self) -> None:
        self._close("answers")

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

    def emergency_is_blocked(self, ref: ChangeRef, why: str) -> None:
        """One alert for each emergency."""
        if ref.change_id in self.blocked:
            return
        self.blocked.append(ref.change_id)
        text = f"EMERGENCY change {ref.change_id} of {ref.entity_type} {ref.entity_id} can't reach OldHost now: {why}."
        self._raise("emergency-blocked", "critical", text, f"emergency:{ref.change_id}", ref.change_id)

    def nothing_is_stuck(self) -> None:
        if self.stuck:
            self.stuck = 0
            self._close(GOES_NOWHERE)

    def has_its_fate(self, change_id: int) -> None:
        if change_id == self.stuck:
            self.nothing_is_stuck()
        if change_id in self.blocked:
            self.blocked.remove(change_id)
            self._close(f"emergency:{change_id}")

    def strays(self, count: int, last_id: int, now_ms: int) -> None:
        text = f"The sweep found {count} outstanding changes that the writer did not hold; it sends them now."
        self._raise("strays", "info", text, f"strays:{last_id}:{now_ms}", count=count)

    def unreadable(self, what: str, dedupe_key: str) -> None:
        self._raise("unreadable-signal", "warning", what, dedupe_key)

    def _raise(
        self, kind: Told, severity: Severity, message: str, key: str, change_id: int | None = None, *, count: int = 1
    ) -> None:
        self._pending.append(RaiseAlert(kind, severity, message, key, change_id, count=count))

    def _close(self, dedupe_key: str) -> None:
        self._pending.append(RaiseAlert("", "info", "", dedupe_key, close=True))


def clock(at_ms: int) -> str:
    """An instant as text, with its date: a ban may end tomorrow."""
    return instant(datetime.fromtimestamp(at_ms / 1000, UTC))
