"""Wrong ideas of the decisions."""

from __future__ import annotations

from tests.mutants.levels import BURST, BY_HAND, PAUSE_END, RECORDS, RELEASES, SIMULATION, UNIT
from tests.mutants.mutant import Mutant, Patch

COALESCER = "oldhost_sync/policy/queue/coalescer.py"
MACHINE = "oldhost_sync/policy/machine/machine.py"
TURNS = "oldhost_sync/policy/queue/lanes.py"

MUTANTS = (
    Mutant(
        "no send gives way",
        (Patch("oldhost_sync/policy/machine/machine.py", "if not lane.heads or self.session.bound_is_cut or", "if True or"),),
        levels=(UNIT,),
    ),
    Mutant(
        "urgent sends have no order",
        (Patch(MACHINE, "sequence = session.urgent_sends if urgent else session.sends", "sequence = 0 if urgent else session.sends"),),
        levels=(BURST,),
    ),
    Mutant(
        "a new run counts its session's urgent sends anew",
        (Patch("oldhost_sync/policy/machine/snapshot.py", '"session": asdict(machine.session),', '"session": {**asdict(machine.session), "urgent_sends": 0},'),),
        levels=(UNIT,),
    ),
    Mutant(
        "a decision that the machine missed holds its unit for good",
        (Patch("oldhost_sync/policy/machine/machine.py", "            self.outcomes.follow_sweep(outstanding, now_ms)\n", "            pass\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a dead letter is decided while another send has it",
        (Patch("oldhost_sync/policy/queue/operations.py", " or self.is_being_sent(change_id)", ""),),
        levels=(UNIT,),
    ),
    Mutant(
        "older change restarts the timer",
        (
            Patch("oldhost_sync/policy/machine/machine.py", "            if ref.change_id < max(older or 0, self.in_flight.newest(ref.key)):\n", "            if ref.change_id < max(older or 0, self.in_flight.newest(ref.key)):\n                held = self.coalescer.waiting.get(older or 0)\n                if held is not None and not held.ready:\n                    held.due_at_ms = now_ms + self.policy.debounce_ms\n                    self.coalescer._debounced.put(held.ref.change_id, held.due_at_ms, held.ref.accepted_at_ms)\n"),
        ),
        levels=(UNIT, SIMULATION),
    ),
    Mutant(
        "no max wait",
        (Patch(COALESCER, "min(restarted_at_ms, latest_at_ms)", "restarted_at_ms"),),
    ),
    Mutant(
        "key without event type",
        (
            Patch(
                "oldhost_sync/policy/changes.py",
                "_new(CoalescingKey, (entity_type, entity_id, event_type))",
                '_new(CoalescingKey, (entity_type, entity_id, ""))',
            ),
        ),
    ),
    Mutant(
        "lane order without inheritance",
        (
            Patch(
                COALESCER,
                "        chain = [self.waiting[change_id] for change_id in ids[: min(bisect_right(ids, last), SEND_OPERATIONS_MAX)]]\n",
                "        chain = [self.waiting[change_id]]\n",
            ),
        ),
    ),
    Mutant(
        "breaker closed without asking",
        (Patch("oldhost_sync/policy/machine/session.py", "            self.move(Event.BAN_DUE)\n", "            self.breaker.state = BreakerState.CLOSED\n"),),
        levels=(UNIT, SIMULATION),
    ),
    Mutant(
        "a send that nobody took gives up the others",
        (Patch("oldhost_sync/policy/machine/machine.py", "        if event.silent:\n            self._give_up_sends()", "        if event:\n            self._give_up_sends()"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a halt reported after all is ignored",
        (Patch("oldhost_sync/policy/machine/machine.py", "        if isinstance(event, SendEnded) and event.halted:\n", "        if isinstance(event, SendEnded) and event.halted and self.in_flight.sends:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what waits is carried whatever its size",
        (Patch("oldhost_sync/policy/machine/snapshot.py", "    fits = few and _fits(waiting, holds)\n", "    fits = few\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a rebuilt writer knows of no pause",
        (Patch(MACHINE, "        self.paused = Pause(operator, reason, until_ms)\n", "        return\n"),),
        levels=(UNIT, SIMULATION),
    ),
    Mutant(
        "nobody watches the promise to emergencies",
        (Patch("oldhost_sync/policy/rules/promise.py", "if wait >= promised.warning_ms]", "if wait < 0]"),),
        levels=(UNIT,),
    ),
    Mutant(
        "held changes kept in the machine",
        (Patch(COALESCER, "        return self._leave_all(entity, hold)\n", "        return 0\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a writer that does not follow the database",
        (Patch("oldhost_sync/policy/machine/operators.py", "    if is_halted(machine) and not halted:\n", "    if False and not halted:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a draining writer that is woken by what it does not begin",
        (
            Patch("oldhost_sync/policy/machine/machine.py", "self.link.reopens_at_ms if self.paused is None and not self.draining else None", "self.link.reopens_at_ms if self.paused is None else None"),
            Patch(MACHINE, "self.sweeping.at_ms if not self.draining and self._may_sweep", "self.sweeping.at_ms if self._may_sweep"),
        ),
        levels=(UNIT,),
    ),
    Mutant(
        "an LWW key goes by when it is due",
        (Patch("oldhost_sync/policy/queue/operations.py", "self.first_at_ms if self.ref.priority_class is _LWW else change_id", "self.due_at_ms if self.ref.priority_class is _LWW else change_id"),),
        levels=(UNIT,),
    ),
    Mutant(
        "an inherited LWW change costs TXN its turn",
        (Patch(COALESCER, "            self.turns.robin.charge_lww()\n", "            pass\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "turns, however old what waits is",
        (Patch(TURNS, "return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW", "return None"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a storm of one property goes before the others' changes",
        (Patch("oldhost_sync/policy/queue/lanes.py", "if self._rotation is None or self._rotation.oldest_is_due:", "if True:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "properties take turns that the oldest change can't afford",
        (Patch(TURNS, "now_ms - first_ms + waiting_ms < self.oldest_first_ms", "now_ms - first_ms < self.oldest_first_ms"),),
        levels=(UNIT,),
    ),
    Mutant(
        "keys go early to a busy OldHost",
        (Patch("oldhost_sync/policy/machine/machine.py", "        if not self.in_flight.entries and not self.coalescer.can_send:\n", "        if True:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what is too old is forecast as if it had turns only",
        (Patch("oldhost_sync/policy/forecast/forecast.py", "promises.oldest_first_ms - now_ms", "100 * promises.oldest_first_ms - now_ms"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a standstill that nobody is told of",
        (Patch("oldhost_sync/policy/machine/conditions.py", "    if progress.stands_still:\n", "    if False:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "an older release's run gets a newer one's snapshot",
        (Patch("oldhost_sync/policy/machine/snapshot.py", "range(VERSION_MIN, release + 1)", "range(VERSION_MIN, VERSION + 1)"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a run of the first release has no mark",
        (Patch("oldhost_sync/policy/machine/release.py", "range(RELEASE, RELEASE_MIN - 1, -1)", "range(RELEASE, RELEASE_MIN, -1)"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "a ban is over when MariaDB's clock says so",
        (Patch("oldhost_sync/policy/machine/session.py", "if left_ms > 0 or now_ms - breaker.banned_at_ms < self._window_ms:", "if left_ms > 0:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "events whose activity was ended by hand are forgotten",
        (Patch("oldhost_sync/policy/machine/conditions.py", "    def not_recorded(self) -> None:\n        self._is_begun = False\n", "    def not_recorded(self) -> None:\n        self._under_way, self._is_begun = None, False\n"),),
        levels=(BY_HAND,),
    ),
    Mutant(
        "a session whose worker has ended waits for each of its sends",
        (Patch("oldhost_sync/policy/machine/machine.py", "        self.session.lost = True\n        self._give_up_sends()\n", "        self.session.lost = True\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a run without a past leaves its predecessor's alerts open",
        (Patch("oldhost_sync/policy/machine/conditions.py", "is_unproven = machine.counters.sessions == 0", "is_unproven = True"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a ban is told to be over when OldHost is asked",
        (Patch("oldhost_sync/policy/machine/conditions.py", "    if is_asking or state is BreakerState.HALTED:\n", "    if state is BreakerState.HALTED:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a host that needs a minute for an operation stands still in each of them",
        (Patch("oldhost_sync/policy/machine/progress.py", "max(NO_PROGRESS_MS, round(SLOW_OPERATIONS * service_ms))", "NO_PROGRESS_MS"),),
        levels=(UNIT,),
    ),
    Mutant(
        "time in which nobody ran the writer is a standstill",
        (Patch("oldhost_sync/policy/machine/progress.py", "now_ms - self.looked_at_ms > self.patience_ms + NOT_RUN_MS", "now_ms < 0"),),
        levels=(UNIT,),
    ),
    Mutant(
        "the end of a pause is asked for again and again",
        (Patch(MACHINE, "            self.paused.is_ending = True\n", ""),),
        levels=(PAUSE_END,),
    ),
    Mutant(
        "nobody wakes up when a pause ends",
        (Patch(MACHINE, "            self.paused.until_ms if self.paused and self._pause_may_end else None,\n", ""),),
        levels=(PAUSE_END,),
    ),
    Mutant(
        "the end of a pause ends a later one",
        (Patch("oldhost_sync/store/ledger/operator_commands.py", "if pause is None or pause.until_ms != act.until_ms:", "if pause is None:"),),
        levels=(RECORDS,),
    ),
    Mutant(
        "whoever relays an act decides how long its pause lasts",
        (Patch("oldhost_sync/policy/rules/operator_act.py", "act.epoch, act.expected, act.for_seconds)", "act.epoch, act.expected)"),),
        levels=(RECORDS,),
    ),
)  # fmt: skip
