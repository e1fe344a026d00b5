"""Wrong ideas about what a number and an answer prove, and about what waits apart."""

from __future__ import annotations

from tests.mutants.levels import (
    APART,
    APART_PAUSES,
    APART_UNIT,
    LOST_ANSWER,
    SETTLEMENT,
    UNLISTED,
    WIRE_UNIT,
)
from tests.mutants.mutant import Mutant, Patch

FATES = "oldhost_sync/store/ledger/fates.py"
OPERATOR_COMMANDS = "oldhost_sync/store/ledger/operator_commands.py"
RECONCILIATION = "oldhost_sync/store/ledger/reconciliation.py"
MISMATCH = "oldhost_sync/store/ledger/halt.py"
FIRST_CONTACT = "oldhost_sync/oldhost/expected_nonce.py"
CERTAINTY = "oldhost_sync/store/read/change_list.py"
COALESCER = "oldhost_sync/policy/queue/coalescer.py"

MUTANTS = (
    # ----------------------------------------------------------------------------------------------- what waits apart
    Mutant(
        "an emergency waits for the second lost answer of another unit",
        (Patch(FATES, " or (row.sends and _another_emergency_waits(connection, host, row))", ""),),
        levels=(APART,),
    ),
    Mutant(
        "an operation that may have used the number before is sent under another one",
        (Patch(FATES, "or not _can_be_unsure(connection, host, other, expected):", "or other.now_bound is not None:"),),
        levels=(APART,),
    ),
    Mutant(
        "a change is decided about while it has a nonce",
        (Patch(FATES, '    "AND a.change_id = %s AND a.reason = %s AND NOT EXISTS (SELECT 1 FROM nonce_requests r "\n    "WHERE r.host = a.host AND r.change_id = a.change_id) LIMIT 1"', '    "AND a.change_id = %s AND a.reason = %s LIMIT 1"'),),
        levels=(APART,),
    ),
    Mutant(
        "an operator's retry keeps the tries",
        (Patch(OPERATOR_COMMANDS, "    forget_tries(connection, act.host, row, RETRIED)\n", ""),),
        levels=(APART,),
    ),
    Mutant(
        "what waits apart can be confirmed",
        (Patch(OPERATOR_COMMANDS, "    if isinstance(row, ActRecorded) or row.outcome is not None:\n", "    if True:\n"),
         Patch(OPERATOR_COMMANDS, "    if not row.unproven:\n", "    if row.outcome is not None and not row.unproven:\n")),
        levels=(APART,),
    ),
    Mutant(
        "the pauses of what waits apart do not grow",
        (Patch("oldhost_sync/policy/rules/apart.py", "PAUSES_MS = (15_000, 60_000, 120_000, 240_000, 480_000, 900_000)", "PAUSES_MS = (15_000,)"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "what waits apart has no pause",
        (Patch("oldhost_sync/policy/machine/machine.py", "now_ms + (left_ms[0] if left_ms else pause_ms(tries))", "now_ms"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "what waits apart is told to nobody",
        (Patch("oldhost_sync/policy/machine/machine.py", "                self.stuck = Stuck(change_id, tries)\n", "                pass\n"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "a decision about what waits apart leaves its pause",
        (Patch("oldhost_sync/policy/machine/operators.py", "    machine.coalescer.unpark(entity)\n", ""),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "the pauses of what waits apart end with the writer's run",
        (Patch(FATES, "        return left_ms > 0\n", "        return False\n"),),
        levels=(APART,),
    ),
    Mutant(
        "a newer state of what waits apart begins with no pause",
        (Patch("oldhost_sync/policy/rules/apart.py", "return min(pause_ms(tries), INHERITED_MS_MAX) if inherits and tries > 1 else 0", "return 0"),),
        levels=(APART,),
    ),
    Mutant(
        "a newer state of what waits apart begins its own tries",
        (Patch(FATES, "    if row.priority_class == PriorityClass.LWW:  # each", "    if False:  # each"),),
        levels=(APART,),
    ),
    Mutant(
        "what a unit was refused before it took something counts",
        (Patch(FATES, '"AND n.entity_id = o.entity_id), 0)"', '"AND n.entity_id = o.entity_id AND FALSE), 0)"'),),
        levels=(APART,),
    ),
    Mutant(
        "a discard leaves the tries of its unit",
        (Patch(OPERATOR_COMMANDS, "    forget_tries(connection, act.host, row)\n", ""),),
        levels=(APART,),
    ),
    Mutant(
        "what waits apart waits longer when the database's clock was set back",
        (Patch(FATES, "return max(0, left) if self.ms_ago >= 0 else 0", "return max(0, left)"),),
        levels=(APART_PAUSES, APART),
    ),
    Mutant(
        "what is marked behind an operation that gives up its number keeps its own",
        (Patch(FATES, "    sql.archive(connection, host, sql.SENT_BEYOND, (nonce,), _BEHIND)\n", ""),),
        levels=(APART,),
    ),
    Mutant(
        "what a resolve has bound again gives up its number",
        (Patch(FATES, "    if not waiting or len(waiting) > _IN_DOUBT_MAX:\n", "    if not waiting:\n"),),
        levels=(APART,),
    ),
    Mutant(
        "the later changes of what waits apart are sent",
        (Patch(COALESCER, "            lane.park(entry.ref.entity)\n", "            pass\n"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "what waited apart gets no turn again",
        (Patch(COALESCER, "                lane.unpark(entity)\n", "                pass\n"),),
        levels=(APART_UNIT,),
    ),
    Mutant(
        "nobody wakes up when the pause of what waits apart is over",
        (Patch("oldhost_sync/policy/machine/machine.py", "min(coalescer.parked.values(), default=None) if may_send else None,", "None,"),),
        levels=(APART_UNIT,),
    ),
    # ------------------------------------------------------------------------------------------- what a host has said
    Mutant(
        "a reading that denies what was said a moment ago halts at once",
        (Patch(RECONCILIATION, "why_stale = stale(expected, sent) if expected > ledger.last_applied_nonce else None", "why_stale = None"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "a reading that denies what was said is an older answer for ever",
        (Patch(MISMATCH, "if denied is None or denied.sent_ms_ago > 1000 * STALE_SECONDS_MAX:", "if denied is None:"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "a nonce that OldHost called used is sent again on an older reading",
        (Patch(MISMATCH, "    return next((row for row in sent if row.nonce >= expected and row.said_used), None)\n", "    return None\n"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "a smaller reading is an older answer for ever",
        (Patch(FIRST_CONTACT, " or now - self.told_at > STALE_SECONDS_MAX", ""),),
        levels=(WIRE_UNIT, UNLISTED),
    ),
    Mutant(
        "a question may be answered from a cache",
        (Patch("oldhost_sync/drivers/http/requests.py", '            "Cache-Control: no-cache\\r\\n\\r\\n"', '        "\\r\\n"'),),
        levels=(WIRE_UNIT,),
    ),
    Mutant(
        "an answer that contradicts itself halts before it is recorded",
        (Patch("oldhost_sync/oldhost/wire_owner.py", "            self._record()  # first: what OldHost called applied is applied, whatever is decided later\n", ""),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "what was never written was refused",
        (Patch(MISMATCH, '"never written" if not_ours.said_send is None else', '"refused each time it was sent" if not_ours.said_send is None else'),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "an unlisted answer is stored once or not at all",
        (Patch("oldhost_sync/oldhost/send.py", "self._retry(lambda: self.shared.ledger.note_answer(self.shared.epoch, operation, said))", "self.shared.ledger.note_answer(self.shared.epoch, operation, said)"),),
        levels=(UNLISTED,),
    ),
    # ------------------------------------------------------------------------------------- how certain a fate is shown
    Mutant(
        "no change is shown as unconfirmed",
        (Patch(CERTAINTY, 'return bool(unproven) and outcome == "APPLIED"', "return False"),),
        levels=(LOST_ANSWER,),
    ),
    Mutant(
        "a change without an answer counts as confirmed in metrics",
        (Patch("activities/session.py", "                self.metrics.unconfirmed.labels(host).inc()\n", "                pass\n"),),
        levels=(LOST_ANSWER,),
    ),
    Mutant(
        "the command line shows no certainty",
        (Patch("oldhost_sync/cli/changes.py", "    if fate.unconfirmed:\n", "    if False:\n"),),
        levels=(LOST_ANSWER,),
    ),
    Mutant(
        "the console shows no certainty",
        (Patch("oldhost_sync/console/templates/change.html", "{% if fate.unconfirmed %}", "{% if false %}"),),
        levels=(LOST_ANSWER,),
    ),
    Mutant(
        "what counts as applied is settled as applied",
        (Patch("oldhost_sync/store/ledger/settlement.py", 'outcome = "applied" if row.answer == "applied" else "unconfirmed"', 'outcome = "applied"'),),
        levels=(SETTLEMENT,),
    ),
    Mutant(
        "older states come back when the newest is given up",
        (Patch("oldhost_sync/store/ledger/operator_commands.py", "    if row.outcome is None and row.priority_class == PriorityClass.LWW:\n", "    if False:\n"),),
        levels=(APART,),
    ),
)  # fmt: skip
