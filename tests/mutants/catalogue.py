"""The mutants: one small wrong idea each, as a patch of the product's text, and where it is expected to be found out."""

from __future__ import annotations

from dataclasses import dataclass

SIMULATION = "simulation"
STALLED = "simulation, stalled after SENT"
UNIT = "unit tests"
CONFORMANCE = "ledger conformance"
EXHAUSTIVE = "exhaustive faults"
MARIADB = "real MariaDB"
FOREIGN_LOCKS = "real MariaDB, rows locked by others"
ALERTS = "real MariaDB, alerts"
SIGNALS = "real Temporal, signals left unread"
WATCHES = "unit tests of the relay"
RECOVERY = "real MariaDB, recovery"
RESETS = "real Temporal, runs that were reset"
GIVING_WAY = "real MariaDB, sends that give way"
RELEASES = "unit tests of releases"
BY_HAND = "real Temporal, activities ended by hand"
ENDED_WORKERS = "real MariaDB, workers that ended"
OVERDUE = "real MariaDB, replies that never come"
CLUSTER = "three real MariaDBs, a cluster"


@dataclass(frozen=True, slots=True)
class Patch:
    """In `path`, `old` (exactly once there) becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`levels`: tried in this order until one kills it. `seeds`: how many the simulation plays."""

    name: str
    patches: tuple[Patch, ...]
    levels: tuple[str, ...] = (SIMULATION, UNIT, CONFORMANCE, EXHAUSTIVE)
    seeds: int = 150


SEND = "oldhost_sync/oldhost/send.py"
PIPELINE = "oldhost_sync/oldhost/nonce_pipeline.py"
REPLY_TIMEOUT = "oldhost_sync/oldhost/reply_timeout.py"
LEDGER = "oldhost_sync/store/ledger/maria_ledger.py"
RECONCILIATION = "oldhost_sync/store/ledger/reconciliation.py"
FENCE = "oldhost_sync/store/ledger/fence.py"
LEDGER_SQL = "oldhost_sync/store/ledger/statements.py"
COALESCER = "oldhost_sync/policy/coalescer.py"
MACHINE = "oldhost_sync/policy/machine.py"
TURNS = "oldhost_sync/policy/turn_rules.py"

MUTANTS = (
    Mutant(
        "SENT marked after the write",
        (
            Patch(
                SEND,
                "                return False\n            self._advance(operation)\n",
                "                return False\n            self._marked, self._marked_at = operation, self._clock()\n",
            ),
            Patch(
                SEND,
                "            came = wait > 0",
                "            self._advance(operation)\n            came = wait > 0",
            ),
        ),
    ),
    Mutant(
        "a no-op goes before an older change of its entity",
        (Patch(LEDGER, "if is_fresh or is_no_op else None", "if is_fresh else None"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an emergency waits for what is reserved",
        (Patch(PIPELINE, "gives_way = urgent_waits and not", "gives_way = False and not"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "what is behind a rejection goes out as it was reserved",
        (Patch(PIPELINE, "owners and (rejected or gives_way or ends)", "owners and (gives_way or ends)"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "what was bound before is given back",
        (Patch(PIPELINE, "return max(self._on_wire, self._next - 1, self._bound_until)", "return max(self._on_wire, self._next - 1)"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "two sends reserve for one change",
        (Patch(PIPELINE, "nonce > self._recorded and change_id in change_ids", "nonce < 0 and change_id in change_ids"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "what may have been written is given back",
        (Patch(LEDGER, "            check(written is None,", "            check(True,"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "no send gives way",
        (Patch(MACHINE, "return self.gives_way and not self.session.bound_list_was_cut", "return False"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a decision that the machine missed holds its unit for good",
        (Patch(MACHINE, "            self.operators.follow_sweep(outstanding, now_ms)\n", "            pass\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a dead letter is decided while another send has it",
        (Patch("oldhost_sync/policy/operations_in_flight.py", " or self.is_being_sent(change_id)", ""),),
        levels=(UNIT,),
    ),
    Mutant(
        "a reset run waits for its activities",
        (Patch("workflows/sync_writer.py", 'return self.reception.was_reset and workflow.patched("reset-leaves-at-once")', "return False"),),
        levels=(RESETS,),
    ),
    Mutant(
        "what follows a doubt keeps its nonce when the doubt waits again",
        (Patch("oldhost_sync/store/ledger/halt_resolution.py", "    if again:  # those after it", "    if False:  # those after it"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a second rejection makes a dead letter of what was given up",
        (Patch(LEDGER, "            return fate\n        return ChangeResult(operation.change_id, Outcome.DEAD.value", "        return ChangeResult(operation.change_id, Outcome.DEAD.value"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "nonce rebound on retry",
        (Patch(LEDGER_SQL, "r.status = 'RESERVED'\"\nHIGHEST", "r.status IN ('RESERVED', 'SENT')\"\nHIGHEST"),),
    ),
    Mutant(
        "timeout taken as failure",
        (
            Patch(SEND, "            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))\n", '            return Rejected("no answer", consumed=False)\n'),
        ),
    ),
    Mutant(
        "no settle time",
        (Patch(RECONCILIATION, "settle_wait_ms=0 if age_ms is None else max(0, settle_ms - age_ms)", "settle_wait_ms=0"),),
    ),
    Mutant(
        "settle too short",
        (Patch(LEDGER, "round(settle_time.total_seconds() * 1000)", "round(settle_time.total_seconds() * 150)"),),
        seeds=300,
    ),
    Mutant(
        "no send deadline",
        (Patch(SEND, "return self._clock() - self._marked_at > self._limits.send_within_seconds", "return False"),),
        levels=(STALLED, SIMULATION),
    ),
    Mutant(
        "deadline read from the wall clock",
        (Patch("activities/session.py", "            clock=self.clock,\n", "            clock=time.time,\n"),),
        levels=(STALLED, SIMULATION),
    ),
    Mutant(
        "deadline checked too early",
        (
            Patch(
                SEND,
                "self._marked, self._marked_at = sent, began\n",
                "self._marked, self._marked_at = sent, self._clock()\n",
            ),
        ),
        levels=(STALLED, SIMULATION),
    ),
    Mutant(
        "outbox by id cursor",
        (
            Patch(
                "oldhost_sync/store/outbox/relay_queue.py",
                'AND o.relayed_at IS NULL"\n# Without',
                'AND o.relayed_at IS NULL AND o.id > (SELECT COALESCE(MAX(m.id), 0) FROM outbox_events m '
                'WHERE m.host = o.host AND m.relayed_at IS NOT NULL)"\n# Without',
            ),
        ),
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
        levels=(MARIADB,),
    ),
    Mutant(
        "retry of one statement instead of the transaction",
        (
            Patch(
                "oldhost_sync/store/transactions.py",
                "            result = fn(connection)\n",
                "            result = fn(_Repeating(connection))  # type: ignore[arg-type]\n",
            ),
            Patch(
                "oldhost_sync/store/transactions.py",
                "def _commit(connection: Connection) -> None:\n",
                "class _Repeating:\n"
                "    def __init__(self, connection):\n"
                "        self._connection = connection\n\n"
                "    def __getattr__(self, name):\n"
                "        return getattr(self._connection, name)\n\n"
                "    def exec_driver_sql(self, *arguments):\n"
                "        try:\n"
                "            return self._connection.exec_driver_sql(*arguments)\n"
                "        except DBAPIError as error:\n"
                "            if error_code(error) not in RETRIABLE_ERRORS:\n"
                "                raise\n"
                "            return self._connection.exec_driver_sql(*arguments)\n\n\n"
                "def _commit(connection: Connection) -> None:\n",
            ),
        ),
        seeds=300,
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
                "        await self.transactions.run(lambda connection: relay_queue.mark_relayed(connection, ids))\n"
                "        try:\n            await self.signal(refs)\n",
            ),
        ),
        levels=(SIMULATION, MARIADB),
    ),
    Mutant(
        "older change restarts the timer",
        (
            Patch(
                MACHINE,
                "            if ref.change_id < newest:\n",
                "            if ref.change_id < newest:\n"
                "                held = self.coalescer.waiting.get(self.coalescer.newest_waiting(ref.key) or 0)\n"
                "                if held is not None and not held.ready:\n"
                "                    held.due_at_ms = now_ms + self.policy.debounce_ms\n"
                "                    self.coalescer._debounced.put(held.ref.change_id, held.due_at_ms)\n",
            ),
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
        "SYNCED while a change waits",
        (Patch("oldhost_sync/store/views/sync_status.py", """f"WHEN {waits} THEN '{PENDING_SYNC}' ELSE""", """f"ELSE"""),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "lane order without inheritance",
        (
            Patch(
                COALESCER,
                "        chain = [self.waiting[one] for one in self._chain(entity, last)]\n",
                "        chain = [self.waiting[change_id]]\n",
            ),
        ),
    ),
    Mutant(
        "breaker closed without asking",
        (Patch("oldhost_sync/policy/breaker.py", "            self._move(BreakerEvent.DUE)\n", "            self.state = BreakerState.CLOSED\n"),),
        levels=(UNIT, SIMULATION),
    ),
    Mutant(
        "answer of another nonce accepted",
        (Patch("oldhost_sync/oldhost/wire.py", "    if answered != nonce:\n", "    if answered is None:\n"),
         Patch("oldhost_sync/oldhost/wire.py", "    if expected != nonce + 1:\n", "    if expected is None:\n")),
        levels=(SIMULATION, UNIT),
        seeds=300,
    ),
    Mutant(
        "bytes behind an answer are not seen",
        (Patch("oldhost_sync/oldhost/response.py", "        self._parse(data[:-1])\n", '        self._parse(b"")\n'),
         Patch("oldhost_sync/oldhost/response.py", "        self._parse(data[-1:])\n", "        self._parse(data)\n")),
        levels=(UNIT,),
    ),
    Mutant(
        "an answer in another protocol is read",
        (Patch("oldhost_sync/oldhost/response.py", 'if not self.has_begun and data[:1] != b"H":', "if not data:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a send that nobody took gives up the others",
        (Patch("oldhost_sync/policy/session_lifecycle.py", "GIVES_UP_TOGETHER and event.silent:", "GIVES_UP_TOGETHER:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a halt reported after all is ignored",
        (Patch("oldhost_sync/policy/session_lifecycle.py", "        if isinstance(event, SendEnded) and event.halted:\n", "        if not epoch:\n"),),
        levels=(UNIT,),
    ),
    # Beyond the list: the fences themselves, and what the programme has found.
    Mutant(
        "no fence at the reservation",
        (Patch(FENCE, "    if row is None or row.epoch != epoch:\n", "    if row is None:\n"),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "marked behind a nonce that was given back",
        (
            Patch(
                LEDGER,
                "        connection.exec_driver_sql(sql.RELEASE_RESERVED_BEYOND, (self._host, nonce))\n",
                "",
            ),
        ),
        levels=(CONFORMANCE, EXHAUSTIVE),
    ),
    Mutant(
        "a no-op does not date the applied state",
        (Patch("oldhost_sync/store/ledger/completion.py", "    elif ending.outcome is Outcome.NO_OP:\n", "    elif False:\n"),),
        levels=(CONFORMANCE, SIMULATION),
        seeds=1500,
    ),
    Mutant(
        "resolved by resending, states in doubt trusted",
        (
            Patch(
                "oldhost_sync/store/ledger/halt_resolution.py",
                "    connection.exec_driver_sql(sql.FORGET_STATES_IN_DOUBT, (host, host, expected))\n",
                "",
            ),
        ),
        levels=(CONFORMANCE, SIMULATION),
        seeds=3000,
    ),
    Mutant(
        "a send that was refused as busy counts",
        (Patch("oldhost_sync/oldhost/refusal.py", "    Busy: Refusal(takes_back=True),\n", "    Busy: Refusal(takes_back=False),\n"),),
        levels=(UNIT, SIMULATION),
    ),
    Mutant(
        "what waits is carried whatever its size",
        (Patch("oldhost_sync/policy/snapshot.py", "    fits = few and _fits(waiting, holds)\n", "    fits = few\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a rebuilt writer knows of no pause",
        (Patch(MACHINE, "        self.paused = Pause(operator, reason)\n", "        return\n"),),
        levels=(UNIT, SIMULATION),
    ),
    # What stopped the writer without a word, or lost what was accepted.
    Mutant(
        "a reservation that overtakes",
        (Patch("oldhost_sync/store/ledger/precedence.py", "    return change_id is not None and change_id < row.id\n", "    return False\n"),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "an equal change skipped whatever the entity got since",
        (Patch("oldhost_sync/store/ledger/reservation.py", " and not candidate.other_applied_since\n", "\n"),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "an id that is used again taken for the change that had it",
        (Patch("oldhost_sync/store/ledger/reservation.py", "    return accepted_at_ms is not None and created_at_ms != accepted_at_ms\n", "    return False\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a fate waits for a row that others hold",
        (Patch("oldhost_sync/store/outbox/pending_fates.py", 'AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "', 'AT_ONCE = ""'),),
        levels=(FOREIGN_LOCKS,),
    ),
    Mutant(
        "found applied: its state is believed",
        (Patch("oldhost_sync/store/ledger/completion.py", "nonce=change.nonce), payload_hash=UNKNOWN)", "nonce=change.nonce))"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a ban lasts longer than itself when the clock is set back",
        (Patch(LEDGER_SQL, "IF(ban_is_over OR UTC_TIMESTAMP(6) < banned_at,", "IF(ban_is_over,"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a row that was taken back waits for the settle time",
        (Patch(LEDGER_SQL, "WHERE host = %s AND status = 'SENT' AND sends > 0\"", "WHERE host = %s AND status = 'SENT'\""),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a halt without OldHost's count",
        (Patch(RECONCILIATION, "    if mismatch is None:\n        return str(row.halted)\n", "    if True:\n        return str(row.halted)\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an alert raised after it was closed",
        (Patch("oldhost_sync/store/alerts.py", "    return last is not None and last >= sequence\n", "    return False\n"),),
        levels=(ALERTS,),
    ),
    Mutant(
        "an alert that gets worse and nobody hears of",
        (Patch("oldhost_sync/store/alerts.py", "    if escalates:\n        record_event(", "    if False:\n        record_event("),),
        levels=(ALERTS,),
    ),
    Mutant(
        "people close what the product still sees",
        (Patch("oldhost_sync/store/alert_decisions.py", "not may_close(found.kind)", "False"),),
        levels=(ALERTS,),
    ),
    Mutant(
        "signals that a terminated run left unread are not looked for",
        (Patch("workflows/reception.py", "(given.unrecorded or not self._continued_run_id)", "given.unrecorded"),),
        levels=(SIGNALS,),
    ),
    Mutant(
        "a run that ended is shown as alive",
        (Patch("oldhost_sync/temporal/writer_health.py", "    if not is_running(described):\n        return", "    if info.status == -1:\n        return"),),
        levels=(WATCHES,),
    ),
    Mutant(
        "the watchdog starts no writer",
        (Patch("oldhost_sync/relay/writer_watch.py", "            actions.append(StartWriter())\n", ""),),
        levels=(WATCHES,),
    ),
    Mutant(
        "nobody watches the promise to emergencies",
        (Patch("oldhost_sync/policy/promise.py", "if wait >= EMERGENCY_WARNING_MS]", "if wait < 0]"),),
        levels=(UNIT,),
    ),
    Mutant(
        "held changes kept in the machine",
        (Patch(COALESCER, "        if not self._keeps_held:\n            return self._leave_all(entity, hold)\n", ""),),
        levels=(UNIT,),
    ),
    Mutant(
        "an old version that comes after newer operations of its entity",
        (Patch("oldhost_sync/store/ledger/precedence.py", "        if row.priority_class == PriorityClass.LWW and (row.is_passed or self._is_passed_by(binding, row)):\n", "        if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a writer that does not follow the database",
        (Patch("oldhost_sync/policy/operators.py", "        if machine.breaker.state is BreakerState.HALTED and not halted:\n", "        if False and not halted:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a draining writer that is woken by what it does not begin",
        (Patch(MACHINE, "        begins = not self.draining or self.release == RELEASE_MIN\n", "        begins = True\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "an LWW key goes by when it is due",
        (Patch(TURNS, "by_first_change=release >= FIRST_CHANGED_FIRST", "by_first_change=False"),),
        levels=(UNIT,),
    ),
    Mutant(
        "an inherited LWW change costs TXN its turn",
        (Patch("oldhost_sync/policy/turns.py", "            self.robin.charge_lww()\n", "            pass\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "turns, however old what waits is",
        (Patch(TURNS, "return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW", "return None"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a storm of one property goes before the others' changes",
        (Patch("oldhost_sync/policy/lanes.py", "if self._rotation is None or self._rotation.oldest_is_due:", "if True:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "properties take turns that the oldest change can't afford",
        (Patch(TURNS, "now_ms - first_ms + waiting_ms < self.oldest_first_ms", "now_ms - first_ms < self.oldest_first_ms"),),
        levels=(UNIT,),
    ),
    Mutant(
        "keys go early to a busy OldHost",
        (Patch(MACHINE, "return self.may_send and not len(self.in_flight) and not self.coalescer.can_send", "return self.may_send"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what is too old is forecast as if it had turns only",
        (Patch("oldhost_sync/policy/load_monitor.py", "oldest_first_ms=coalescer.rules.oldest_first_ms,", "oldest_first_ms=None,"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a standstill that nobody is told of",
        (Patch("oldhost_sync/policy/notices.py", "        machine.coalesced_alerts.no_progress((now_ms - progress.since_ms) // 1000, reason, emergencies)\n", "        del reason, emergencies\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "no longer a timeout after a wait in vain than before it",
        (Patch(REPLY_TIMEOUT, " or self._given_up_since is not None:\n", ":\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "silence that nobody listened to",
        (Patch("oldhost_sync/oldhost/connection.py", "max(self._began + reply_seconds, self._clock() + to_listen)", "self._began + reply_seconds"),),
        levels=(UNIT,),
    ),
    Mutant(
        "nothing learnt from an operation that was only slow",
        (Patch("oldhost_sync/oldhost/recovery.py", "            case ConnectionInUse():\n                self.reply_timeout.found_unfinished(self.clock())\n", "            case ConnectionInUse():\n"),),
        levels=(OVERDUE,),
    ),
    Mutant(
        "the reply timeout is of a session",
        (Patch("oldhost_sync/oldhost/recovery.py", "            reply_timeout=self.reply_timeout,\n", "            reply_timeout=ReplyTimeout(),\n"),),
        levels=(OVERDUE,),
    ),
    Mutant(
        "what somebody else may have sent since is forgotten",
        (Patch("oldhost_sync/oldhost/first_contact.py", "        if epoch != self.epoch + 1:\n", "        if False:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "not applied is believed as soon as OldHost is reached",
        (Patch("oldhost_sync/oldhost/recovery.py", "                reached[0].close()\n                self._rest(late_seconds)\n", "                reached[0].close()\n"),),
        levels=(RECOVERY,),
    ),
    Mutant(
        "a run is begun with what this worker knows, whoever is at work beside it",
        (Patch("oldhost_sync/worker/release_watch.py", "return min(known.smallest, RELEASE)", "return RELEASE"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "what was read of the others long ago is believed",
        (Patch("oldhost_sync/worker/release_watch.py", "known is None or self.monotonic() > self._looked_at + FRESH_SECONDS", "known is None"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "an older release's run gets a newer one's snapshot",
        (Patch("oldhost_sync/policy/release.py", "    if _has_number(mark, _SNAPSHOT_MARK):\n", "    if False:\n"),),
        levels=(RELEASES,),
    ),
    Mutant(
        "an old version goes behind newer operations of its send",
        (Patch("oldhost_sync/store/ledger/precedence.py", "(row.is_passed or self._is_passed_by(binding, row))", "row.is_passed"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a ban that OldHost ended may begin again",
        (Patch(RECONCILIATION, "    if not ledger.ban_is_over:\n", "    if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a ban is over when MariaDB's clock says so",
        (Patch("oldhost_sync/policy/bans.py", "lasts=lasts", "lasts=False"),),
        levels=(SIMULATION,),
    ),
    Mutant(
        "alerts whose activity was ended by hand are forgotten",
        (Patch("oldhost_sync/policy/coalesced_alerts.py", "        self._waiting = {**again, **self._waiting}\n", ""),),
        levels=(BY_HAND,),
    ),
    Mutant(
        "fewer answers than submissions are believed",
        (Patch("workflows/calls.py", "if len(answers) != len(request.items):", "if False:"),),
        levels=(BY_HAND,),
    ),
    Mutant(
        "a worker that lost its lock for a moment is said to have ended",
        (Patch("oldhost_sync/worker/watch.py", "for name in [name for name in silent if name in still]:", "for name in silent:"),),
        levels=(ENDED_WORKERS,),
    ),
    Mutant(
        "a worker's lock lasts as long as its connection is silent",
        (Patch("oldhost_sync/store/worker_locks.py", "SET SESSION wait_timeout = {SILENT_SECONDS_MAX}", "DO 0"),),
        levels=(ENDED_WORKERS,),
    ),
    Mutant(
        "a session whose worker has ended waits for each of its sends",
        (Patch("oldhost_sync/policy/session_lifecycle.py", "        session.lost = True\n        self._give_up_sends()\n", "        session.lost = True\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a mark locks the ledger's row and does not write it",
        (Patch(LEDGER, "else write_sending", "else lock_sending"),), levels=(CLUSTER,),
    ),
)  # fmt: skip
