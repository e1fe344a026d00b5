"""Wrong ideas in the processes: the writer's workflow and its activities, relay, worker, stack."""

from __future__ import annotations

from tests.mutants.levels import (
    ACTIVITIES,
    BY_HAND,
    CLOCK_SET_BACK,
    CONDITIONS,
    DELIVERY,
    ENDED_WORKERS,
    FAILING_RELAYS,
    FATE_WEBHOOKS,
    HEALTH,
    LEASES,
    LEAVING,
    NO_RELAY,
    QUIET_HOURS,
    RELAY_ROUNDS,
    RELEASES,
    RESETS,
    SIGNALS,
    SIMULATION,
    STACK,
    STALLED,
    STARTS,
    UNIT,
    UNSERVED_HOSTS,
    WATCHES,
)
from tests.mutants.mutant import Mutant, Patch

WRITER_HEALTH = "oldhost_sync/temporal/writer_health.py"
KEEPER = "oldhost_sync/relay/quiet_hours.py"
RELEASE_WATCH = "oldhost_sync/worker/release_watch.py"
FATE_WEBHOOKS_FILE = "oldhost_sync/fate_webhooks.py"

MUTANTS = (
    Mutant(
        "a reset run waits for its activities",
        (Patch("workflows/sync_writer.py", "        return self.reception.was_reset\n", "        return False\n"),),
        levels=(RESETS,),
    ),
    Mutant(
        "a run leaves in the task that may bring its activities' results",
        (Patch("workflows/sync_writer.py", "decides_again=not self._leaves_at_once", "decides_again=False"),),
        levels=(LEAVING,),
    ),
    Mutant(
        "deadline read from the wall clock",
        (Patch("activities/session.py", "            clock=self.clock,\n", "            clock=time.time,\n"),),
        levels=(STALLED, SIMULATION),
    ),
    Mutant(
        "poller inside one long snapshot",
        (
            Patch(
                "oldhost_sync/relay/transactions.py",
                "        return await loop.run_in_executor(self._threads, run)\n",
                '        if not hasattr(self, "_snapshot"):\n'
                '            self._snapshot = self._engine.connect().execution_options(isolation_level="REPEATABLE READ")\n'
                "        return await loop.run_in_executor(self._threads, fn, self._snapshot)\n",
            ),
        ),
        levels=(RELAY_ROUNDS,),
    ),
    Mutant(
        "continue-as-new without draining",
        (
            Patch(
                "workflows/sync_writer.py",
                "if self.machine.draining and self._is_drained():",
                "if self.machine.draining:",
            ),
        ),
    ),
    Mutant(
        "outbox marked before the signal is acknowledged",
        (
            Patch(
                "oldhost_sync/relay/relay.py",
                "        try:\n            await self.signal(refs)\n",
                "        ids = [ref.change_id for ref in refs]\n"
                "        await self.transactions.run(lambda connection: outstanding_changes.mark_relayed(connection, ids))\n"
                "        try:\n            await self.signal(refs)\n",
            ),
        ),
        levels=(SIMULATION, RELAY_ROUNDS),
    ),
    Mutant(
        "signals that a terminated run left unread are not looked for",
        (Patch("workflows/reception.py", "self.recovering = given.unrecorded or not self._continued_run_id", "self.recovering = given.unrecorded"),),
        levels=(SIGNALS,),
    ),
    Mutant(
        "a run that ended is shown as alive",
        (Patch(WRITER_HEALTH, "    if not is_paused and not is_running(described):\n        return", "    if info.status == -1:\n        return"),),
        levels=(WATCHES,),
    ),
    Mutant(
        "the watchdog starts no writer",
        (Patch("oldhost_sync/relay/watchdog.py", "return Judgement(kind, why, start, ", "return Judgement(kind, why, False, "),),
        levels=(WATCHES,),
    ),
    Mutant(
        "a run is begun with what this worker knows, whoever is at work beside it",
        (Patch(RELEASE_WATCH, "return max(min(known.smallest, RELEASE), RELEASE_MIN)", "return RELEASE"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "what was read of the others long ago is believed",
        (Patch(RELEASE_WATCH, "known is None or self.monotonic() > self._looked_at + FRESH_SECONDS", "known is None"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "fewer answers than submissions are believed",
        (Patch("workflows/reception.py", "if len(answers) != len(request.items):", "if False:"),),
        levels=(BY_HAND,),
    ),
    Mutant(
        "a worker that lost its lock for a moment is said to have ended",
        (Patch("oldhost_sync/worker/watch.py", "for name in [name for name in silent if name in still]:", "for name in silent:"),),
        levels=(ENDED_WORKERS,),
    ),
    Mutant(
        "a run that takes no signals keeps the workers from all runs",
        (Patch(RELEASE_WATCH, "            if error.status is RPCStatusCode.NOT_FOUND:\n                return  # it has ended\n", "            raise\n"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "a run is asked for a new one at each look",
        (Patch(RELEASE_WATCH, "elif now < last.again_at:", "elif False:"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "an activity that a person paused is not told of",
        (Patch(WRITER_HEALTH, "activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED", "False"),),
        levels=(WATCHES,),
    ),
    Mutant(
        "an offered lease is renewed with the others",
        (Patch("oldhost_sync/store/outbox/outstanding_changes.py", 'WHERE owner = :owner AND expires_at <= {_UNTIL}")\n_HELD', 'WHERE owner = :owner")\n_HELD'),),
        levels=(LEASES,),
    ),
    Mutant(
        "a host that no relay serves is not told of",
        (Patch("oldhost_sync/relay/relay_health.py", "shown = unserved & self._unserved", "shown = frozenset[str]()"),),
        levels=(UNSERVED_HOSTS,),
    ),
    Mutant(
        "a webhook that never finishes its answer holds the delivery",
        (Patch("oldhost_sync/delivery.py", "    deadline.start()\n", ""),),
        levels=(DELIVERY,),
    ),
    Mutant(
        "a webhook's cursor moves before its fate is accepted",
        (Patch(FATE_WEBHOOKS_FILE, "                self._send(connection, state, row, place)\n", "                webhook_cursors.advance(connection, state, place)\n                connection.commit()\n                self._send(connection, WebhookState(state.host, state.name, place, None, is_disabled=False), row, place)\n"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a sender that was overtaken moves the webhook's cursor all the same",
        (Patch("oldhost_sync/store/webhook_cursors.py", "*same).values", ").values"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a webhook that answered 410 is tried again",
        (Patch(FATE_WEBHOOKS_FILE, "disable=not_taken.status == HTTPStatus.GONE", "disable=False"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "while a webhook's secret is replaced only the new one signs",
        (Patch(FATE_WEBHOOKS_FILE, "for secret in secrets]", "for secret in secrets[:1]]"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a webhook gets the fates of all sources",
        (Patch(FATE_WEBHOOKS_FILE, 'if self.webhook.source in {None, row["source"]}:', "if True:"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a webhook gets what OldHost repeats of a payload",
        (Patch(FATE_WEBHOOKS_FILE, 'row["error"] and cause_of(row["error"], REASON_LENGTH_MAX)', 'row["error"]'),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a webhook may be posted to in clear text anywhere",
        (Patch("oldhost_sync/webhooks_file.py", 'parts.scheme == "http" and _is_loopback(parts.hostname)', 'parts.scheme == "http"'),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a webhook whose feed was restored gets nothing any more",
        (Patch(FATE_WEBHOOKS_FILE, "            return read_feed(connection, state.host, error.oldest, limit=limit)\n", "            raise\n"),),
        levels=(FATE_WEBHOOKS,),
    ),
    Mutant(
        "a signal handler takes the lock of what its own thread waits for",
        (Patch("oldhost_sync/stack/processes.py", "ended: SignalSafeEvent = field(default_factory=SignalSafeEvent)\n    _children", "ended: SignalSafeEvent = field(default_factory=__import__('threading').Event)\n    _children"),),
        levels=(STACK,),
    ),
    Mutant(
        "a run of somebody else's under the writer's ID is taken for the writer",
        (Patch(WRITER_HEALTH, "if (info.type.name, info.task_queue) != (WORKFLOW_TYPE, TASK_QUEUE):", "if False:"),),
        levels=(WATCHES,),
    ),
    Mutant(
        "a namespace that is gone is a writer that is missing",
        (Patch(WRITER_HEALTH, " and not is_no_namespace(error)", ""),),
        levels=(HEALTH,),
    ),
    Mutant(
        "nobody tells that all relays are gone",
        (Patch("oldhost_sync/worker/watch.py", "_UNSERVED if host in unserved else None", "None"),),
        levels=(NO_RELAY,),
    ),
    Mutant(
        "a fact opens its alert at once",
        (Patch("oldhost_sync/policy/rules/conditions.py", "now >= since + KINDS[kind].opens_after_s", "True"),),
        levels=(CONDITIONS,),
    ),
    Mutant(
        "a fact that was interrupted counts as lasting",
        (Patch("oldhost_sync/policy/rules/conditions.py", "condition.since = None if fact is None else since", "condition.since = since"),),
        levels=(CONDITIONS,),
    ),
    Mutant(
        "an alert that an earlier process opened stays open",
        (Patch("oldhost_sync/policy/rules/conditions.py", "condition.due = [step] if lasts and (step != condition.written or is_old) else []", "condition.due = [step] if lasts and step.fact and (step != condition.written or is_old) else []"),),
        levels=(CONDITIONS,),
    ),
    Mutant(
        "a fact from before an outage is told after it",
        (Patch("oldhost_sync/policy/rules/conditions.py", "now <= condition.reported_at + _fresh_seconds(step.kind)", "True"),),
        levels=(CONDITIONS,),
    ),
    Mutant(
        "writes refused in an outage are told to nobody after it",
        (Patch("oldhost_sync/policy/rules/conditions.py", "if condition.is_told_afterwards and not (lasts and fact):", "if False:"),),
        levels=(CONDITIONS,),
    ),
    Mutant(
        "nobody tells of a relay that fails",
        (Patch("oldhost_sync/relay/relay_health.py", "            if why:\n                self.conditions", "            if False:\n                self.conditions"),),
        levels=(FAILING_RELAYS,),
    ),
    Mutant(
        "an outage that is over is told as a relay's failure",
        (Patch("oldhost_sync/relay/relay_health.py", "            for host in self.relays:\n                self.conditions.unknown(host, FAILING)\n            raise\n", "            raise\n"),),
        levels=(FAILING_RELAYS,),
    ),
    Mutant(
        "a task that fails again as a new one is calm",
        (Patch(WRITER_HEALTH, "ends = [event for event in ends if not _by_others(event)]", "return None"),),
        levels=(WATCHES,),
    ),
    Mutant(
        "a session is opened during an operator's pause",
        (Patch("activities/session.py", "        if pause is not None:\n", "        if False:\n"),),
        levels=(ACTIVITIES,),
    ),
    Mutant(
        "an opening waits for a locked ledger until its heartbeat is overdue",
        (Patch("oldhost_sync/store/ledger/maria_ledger.py", "            waits_again=False,\n        )\n\n    def adopt_first", "        )\n\n    def adopt_first"),),
        levels=(ACTIVITIES,),
    ),
    Mutant(
        "a nudged run relies on the timers that it has",
        (Patch("workflows/sync_writer.py", "            self.timers.distrust()\n", "            pass\n"),),
        levels=(CLOCK_SET_BACK,),
    ),
    Mutant(
        "the lists of a new run are numbered by the clock alone",
        (Patch("oldhost_sync/policy/machine/conditions.py", "            sequence=max(self._last.sequence, sequence),\n", "            sequence=self._last.sequence,\n"),),
        levels=(STARTS,),
    ),
    Mutant(
        "a time that the clock shows twice is quiet once",
        (Patch("oldhost_sync/policy/rules/quiet_hours.py", "for fold in (0, 1)]", "for fold in (0,)]"),),
        levels=(UNIT,),
    ),
    Mutant(
        "quiet hours that an operator has ended begin again",
        (Patch(KEEPER, "return any((act.operator, act.reason) == (NAME, reason) for act in acts)", "return False"),),
        levels=(QUIET_HOURS,),
    ),
    Mutant(
        "quiet hours are asked for during another pause",
        (Patch(KEEPER, "    if current_pause(connection, host) is not None:\n        return True\n", ""),),
        levels=(QUIET_HOURS,),
    ),
)  # fmt: skip
