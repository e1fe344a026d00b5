"""The figures that the writer's policy works by, and the limits it keeps (each with its reason)."""

from __future__ import annotations

from dataclasses import dataclass

# Urgent ones beside them, likewise: one on the wire, one at the socket.
URGENT_SENDS_IN_FLIGHT_MAX = 2
# Two: while one send is on the wire the next one already waits at the socket. A third would only delay an emergency.
SENDS_IN_FLIGHT_MAX = 2
# A send fills at most this long with so many operations: each send costs Temporal the same, so it holds several where
# OldHost is slow. More of them save little, and each emergency takes back the nonces of all that are not on the wire.
SEND_FILL_MS = 3_200
SEND_OPERATIONS = 8
# And at least this long, where OldHost is quick: longer than an activity's round trip (some 100 ms), so that the socket
# never waits for Temporal. In runs begun before sends gave way each is this long.
SHORT_SEND_FILL_MS = 300
# Bounds a send's input, its one reserve transaction, and what a crash leaves reserved.
SEND_OPERATIONS_MAX = 100
# OldHost's pace until it is measured (about 400 ms a request).
SERVICE_MS_DEFAULT = 400.0
# Pause before opening a session again when that failed for a reason of our own (database or worker away): doubles up to
# 30 s.
REOPEN_MS_MIN = 1_000
REOPEN_MS_MAX = 30_000
# After so many attempts in a row without a session, people are told.
REOPEN_ALERT_ATTEMPTS = 5
# After so many sessions in a row that could not end the operation in doubt: it may never end, and all waits behind it.
SESSIONS_WITHOUT_PROGRESS_ALERT = 5
# Pause before a page of what is outstanding is read again when MariaDB did not answer: doubles up to 10 s.
RELOAD_MS_MIN = 1_000
RELOAD_MS_MAX = 10_000
FORECAST_MS = 60_000
# So long without a fate, though something could go, is told: longer than what a lost reply or a killed worker costs
# (some 15 s), and well within the promise for emergencies.
NO_PROGRESS_MS = 20_000
# An alert that counts is told again as its count grows, no more often than this.
ALERT_GROWS_MS = 10_000
# Alerts in one activity: some 100 KiB at most.
ALERTS_AT_ONCE_MAX = 100
# So many undecided dead letters have an alert each; who has more wants to hear of them once.
DEAD_LETTERS_TOLD_MAX = 20
# One pass of the writer moves so many keys from their debounce into their lane (some 25 ms), and the rest at its next
# passes: Temporal takes a task of 2 s for a deadlock, and nobody is answered meanwhile.
MOVED_AT_ONCE_MAX = 2_500
# So many waiting changes are carried into a new run, which takes them over in its first pass (some 0.12 s). More are
# read again from MariaDB, page by page, while it sends.
CARRIED_MAX = 25_000
# The promises that the forecast watches: consistent within four hours, an emergency within 30 s.
CONSISTENCY_MS = 4 * 3_600_000
EMERGENCY_MS = 30_000
# A change so old goes before younger ones of the other lane: 3:1 would break the promise for one lane while the other's
# are minutes old. A lower limit costs more operations, since keys go before they have coalesced.
OLDEST_FIRST_MS = 3 * 3_600_000
# Of a lane's turns every third is its oldest change's, whosever it is, and the others are the properties' in rotation:
# without it a property that has somewhat more to do than others would have keys twice as old in the peak.
OLDEST_TURN_EVERY = 3
# The first sweep after a start comes early: it finds what was marked relayed while the writer was being rebuilt.
FIRST_SWEEP_MS = 60_000


@dataclass
class WriterPolicy:
    """Carried through continue-as-new, renewed by `starter.py`. All times in ms. `early_send_ms`: while OldHost is
    idle, an LWW key that was quiet for so long does not wait for the end of its debounce; 0: it does.
    """

    debounce_ms: int = 120_000
    max_wait_ms: int = 600_000
    txn_per_lww: int = 3
    ban_ms: int = 900_000
    sweep_ms: int = 300_000
    probe_ms: int = 100_000
    early_send_ms: int = 0
