"""Wrong ideas of what applications are told: when a change is expected, and its fate."""

from __future__ import annotations

from tests.mutants.levels import BATCH_PROGRESS, EXPECTED, FATE_STREAMS, UNIT
from tests.mutants.mutant import Mutant, Patch

OUTLOOK = "oldhost_sync/policy/forecast/outlook.py"
EXPECTED_ARRIVAL = "oldhost_sync/api/expected_arrival.py"
STREAMS = "oldhost_sync/api/fate_streams.py"
EVENTS = "oldhost_sync/api/routes/events.py"

MUTANTS = (
    Mutant(
        "each write asks the writer",
        (
            Patch(
                EXPECTED_ARRIVAL,
                "if self._asking is None and self._clock() >= self._next_at:",
                "if self._asking is None:",
            ),
        ),
        levels=(EXPECTED,),
    ),
    Mutant(
        "what was recorded since the last outlook takes no time",
        (Patch(EXPECTED_ARRIVAL, "        self._recorded.append((at, ref))\n        self._count(ref)\n", ""),),
        levels=(EXPECTED,),
    ),
    Mutant(
        "what the writer has counts twice",
        (Patch(EXPECTED_ARRIVAL, "self._recorded[0][0] < began - RELAY_MS / 1000", "self._recorded[0][0] < 0"),),
        levels=(EXPECTED,),
    ),
    Mutant(
        "a writer that is away is expected to do as before",
        (Patch(EXPECTED_ARRIVAL, "self._outlook is None or not self._is_recent()", "self._outlook is None"),),
        levels=(EXPECTED,),
    ),
    Mutant(
        "a change waits for all of each other property",
        (Patch(OUTLOOK, "sum(min(count, mine) for count in counts.values())", "sum(counts.values())"),),
        levels=(EXPECTED,),
    ),
    Mutant(
        "a paused writer is expected to send",
        (
            Patch(
                "workflows/status_report.py",
                "known = machine.pause_left_ms(now_ms) is not None if machine.paused else state(machine) in FORESEEN",
                "known = True",
            ),
        ),
        levels=(UNIT,),
    ),
    Mutant(
        "a change is expected in the midst of quiet hours",
        (
            Patch(
                EXPECTED_ARRIVAL,
                "_text(change.accepted_at + takes)",
                "_text(change.accepted_at + timedelta(milliseconds=expected_ms))",
            ),
        ),
        levels=(EXPECTED,),
    ),
    Mutant(
        "a stream has the fates of other applications",
        (Patch(EVENTS, ' if may_see(caller, row.pop("source"))]', ' if row.pop("source")]'),),
        levels=(FATE_STREAMS,),
    ),
    Mutant(
        "a stream that is opened again begins anew",
        (Patch(EVENTS, 'request.headers.get("last-event-id") or since', "since"),),
        levels=(FATE_STREAMS,),
    ),
    Mutant(
        "others' fates are passed over without a cursor",
        (Patch(EVENTS, 'seen = [f"id: {after}\\n\\n"]', "seen = []"),),
        levels=(FATE_STREAMS,),
    ),
    Mutant(
        "a stream lasts as long as its reader likes",
        (Patch(STREAMS, "while not self._is_closed and self._clock() < until:", "while not self._is_closed:"),),
        levels=(FATE_STREAMS,),
    ),
    Mutant(
        "the look for fates outlasts the last stream",
        (Patch(STREAMS, "            if not self._of_token.total():\n                self._stop()\n", ""),),
        levels=(FATE_STREAMS,),
    ),
    Mutant(
        "a batch of another application is counted",
        (
            Patch(
                "oldhost_sync/api/routes/changes.py",
                "seen = [each for each in found if may_see(caller, each[0])]",
                "seen = found",
            ),
        ),
        levels=(BATCH_PROGRESS,),
    ),
)
