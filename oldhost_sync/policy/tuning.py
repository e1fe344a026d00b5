"""The tuning values and limits of the writer's policy, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.changes import PriorityClass

# Urgent sends in flight, in addition to the ordinary ones: one on the wire, one at the socket.
URGENT_SENDS_IN_FLIGHT_MAX = 2
# Ordinary sends in flight: while one is on the wire, the next already waits at the socket. A third would only delay an
# emergency.
SENDS_IN_FLIGHT_MAX = 2
# A send to a slow host has at most 8 operations and takes at most 3.2 s. Each send costs Temporal the same, so it has
# several operations. With more, the next TXN change waits longer for its turn.
SEND_FILL_MS = 3_200
SEND_OPERATIONS = 8
# While no TXN change has arrived for this long, a send lasts up to 6.4 s, but no longer than a
# fifteenth of the debounce: what is in a send can't coalesce.
CALM_MS = 60_000
LONG_SEND_FILL_MS = 6_400
LONG_SEND_OPERATIONS = 16
DEBOUNCE_PER_LONG_SEND = 15
# Where OldHost is quick, a send has enough operations for at least this long: longer than an activity's round trip
# (100 ms), so that the socket never waits for Temporal.
SHORT_SEND_FILL_MS = 300
# It lasts up to this long, so that more operations share the round trip's 40 ms of CPU, but no longer than a hundredth
# of the debounce: what is in a send can't coalesce.
QUICK_SEND_FILL_MS = 1_200
DEBOUNCE_PER_SEND = 100
# Bounds a send's input, the transaction that reserves its nonces, and the nonces that a crash leaves reserved.
SEND_OPERATIONS_MAX = 100
# Assumed until OldHost's time per request is measured.
SERVICE_MS_DEFAULT = 400.0
# Pause before the next attempt to open a session, when the last one failed for a reason of our own (database or worker
# down). Doubles up to 30 s.
REOPEN_MS_MIN = 1_000
REOPEN_MS_MAX = 30_000
# Failed attempts in a row to open a session, after which an alert is raised.
REOPEN_ALERT_ATTEMPTS = 5
# Sessions in a row that could not clear up the operation in doubt, after which an alert is raised: it may stay in doubt
# for ever, and everything waits behind it.
SESSIONS_WITHOUT_PROGRESS_ALERT = 5
# Pause before a page of outstanding changes is read again after MariaDB did not answer. Doubles up to 10 s.
RELOAD_MS_MIN = 1_000
RELOAD_MS_MAX = 10_000
FORECAST_MS = 60_000
# Alert after this long without a fate while something could be sent: longer than the delay that a lost reply or a
# killed worker causes (some 15 s), and well within the promise for emergencies.
NO_PROGRESS_MS = 20_000
# The words about a condition (a count, a reason) are brought up to date at most this often.
CONDITION_CHANGES_MS = 10_000
# Keys that one pass of the writer moves from their debounce into their lane (some 25 ms); the rest follows in the next
# passes. Temporal takes a task of 2 s for a deadlock, and the writer answers nothing during a pass.
MOVED_AT_ONCE_MAX = 2_500
# Up to this many waiting changes are carried into a new run, which takes them over in its first pass (some 0.12 s). If
# there are more, the new run reads them again from MariaDB, page by page, while it sends.
CARRIED_MAX = 25_000
# What is promised unless a host's settings say otherwise.
CONSISTENCY_MS = 4 * 3_600_000
EMERGENCY_MS = 30_000
# Every third turn of a lane is for its oldest change, of whatever property; in the other turns the properties rotate.
# Without it, the keys of a property with slightly more changes than others would get twice as old in the peak.
OLDEST_TURN_EVERY = 3
# The first sweep after a start is early: it finds changes that were marked relayed during the rebuild.
FIRST_SWEEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class Promises:
    """How old a change, and an emergency, may be at most when the host has it."""

    consistency_ms: int = CONSISTENCY_MS
    emergency_ms: int = EMERGENCY_MS

    def of(self, cls: PriorityClass) -> int:
        """In ms."""
        return self.emergency_ms if cls is PriorityClass.EMERGENCY else self.consistency_ms

    @property
    def warning_ms(self) -> int:
        """An emergency of this age is late: people are told before the promise is broken."""
        return self.emergency_ms // 2

    @property
    def oldest_first_ms(self) -> int:
        """A change of this age is sent before younger ones of the other lane: with turns of 3:1 the changes of one lane
        would break the promise while those of the other are minutes old. A lower limit costs more operations, because
        keys would be sent before they have coalesced.
        """
        return self.consistency_ms * 3 // 4

    @property
    def consistency(self) -> str:
        """In words."""
        return f"{self.consistency_ms / 3_600_000:g} h"

    @property
    def emergency(self) -> str:
        """In words."""
        return f"{self.emergency_ms / 1000:g} s"


USUAL_PROMISES = Promises()


@dataclass
class WriterPolicy:
    """Carried through continue-as-new, updated by `starter.py`. All times in ms. `early_send_ms`: while OldHost is
    idle, an LWW key that has not changed for this long is sent before its debounce ends; 0: never. The last two are the
    `promises`.
    """

    debounce_ms: int = 120_000
    max_wait_ms: int = 600_000
    txn_per_lww: int = 3
    ban_ms: int = 900_000
    sweep_ms: int = 300_000
    probe_ms: int = 100_000
    early_send_ms: int = 0
    consistency_ms: int = CONSISTENCY_MS
    emergency_ms: int = EMERGENCY_MS

    @property
    def promises(self) -> Promises:
        return Promises(self.consistency_ms, self.emergency_ms)
