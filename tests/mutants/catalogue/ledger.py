"""Wrong ideas about the ledger."""

from __future__ import annotations

from tests.mutants.levels import (
    APART,
    CLUSTER,
    CONFORMANCE,
    CONSEQUENCES,
    EXHAUSTIVE,
    HALT_DECISIONS,
    SIMULATION,
    UNLISTED,
    USED_NONCE,
)
from tests.mutants.mutant import Mutant, Patch

LEDGER = "oldhost_sync/store/ledger/maria_ledger.py"
RECONCILIATION = "oldhost_sync/store/ledger/reconciliation.py"
FENCE = "oldhost_sync/store/ledger/statements.py"
FATES = "oldhost_sync/store/ledger/fates.py"
RESOLUTION = "oldhost_sync/store/ledger/halt.py"
LEDGER_SQL = "oldhost_sync/store/ledger/statements.py"

MUTANTS = (
    Mutant(
        "where the count falls in an answer, what it called applied is sent again",
        (Patch(RESOLUTION, "if ledger.count_fell_at is not None or not resend:", "if not resend:"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "that the count fell in an answer is forgotten with its process",
        (Patch(LEDGER, "if answer.names_earlier_than(operation.nonce):", "if False:"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "a refused operation keeps its nonce",
        (Patch(FATES, "    if not gives_up:\n", "    if True:\n"),),
        levels=(APART,),
    ),
    Mutant(
        "a lost answer gives the nonce away at once",
        (Patch(FATES, "row.refused or row.sends > 1 or", "row.refused or row.sends or"),),
        levels=(APART,),
    ),
    Mutant(
        "a nonce that two operations had proves the last one applied",
        (Patch(FATES, "shared=bool(others), repeated=repeated", "repeated=repeated"),),
        levels=(APART,),
    ),
    Mutant(
        "the operation that had the nonce before stays where it was",
        (Patch(FATES, "[ended.fate, *_end_others(connection, host, others, expected)]", "[ended.fate]"),),
        levels=(APART,),
    ),
    Mutant(
        "the body that a nonce had before is not kept",
        (Patch(FATES, "    sql.archive(connection, host, sql.ONE, (nonce, change_id), why)\n", '    connection.exec_driver_sql("DELETE FROM nonce_requests WHERE host = %s AND nonce = %s", (host, nonce))\n'),),
        levels=(APART,),
    ),
    Mutant(
        "a host that refuses everything makes dead letters",
        (Patch("oldhost_sync/policy/rules/apart.py", "return passed >= TRIES_MAX - 1 or", "return tries >= TRIES_MAX or"),),
        levels=(APART,),
    ),
    Mutant(
        "a refused operation is tried for ever",
        (Patch("oldhost_sync/policy/rules/apart.py", "return passed >= TRIES_MAX - 1 or tries >= TRIES_ALONE_MAX", "return False"),),
        levels=(APART,),
    ),
    Mutant(
        "a lost answer counts as one that said applied",
        (Patch(FATES, "Outcome.APPLIED, nonce=change.nonce)\n        return replace(ending, payload_hash=UNKNOWN, unproven=True,", "Outcome.APPLIED, nonce=change.nonce)\n        return replace(ending, payload_hash=UNKNOWN,"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a used nonce whatever was answered counts as applied",
        (Patch(FATES, "    if not row.sends or row.said_send != row.sends:\n", "    if True:\n"),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "an answer of an earlier send decides about a later one",
        (Patch(FATES, "row.said_send != row.sends:", "not row.said_send:"),),
        levels=(USED_NONCE,),
    ),
    Mutant(
        "an unsure answer counts as a rejection",
        (Patch(FATES, "if row.said_rejects and not (repeated and row.sends > 1):", "if True:"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a rejection of a form that we don't know counts as unsure",
        (Patch(FATES, "if row.said_rejects and not (repeated and row.sends > 1):", "if False:"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an unsure change makes an equal one a no-op",
        (Patch(FATES, "    if ending.outcome is Outcome.APPLIED or ending.unproven:\n", "    if ending.outcome is Outcome.APPLIED:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a rejected change can be confirmed",
        (Patch("oldhost_sync/store/ledger/operator_commands.py", "    if not row.unproven:\n", "    if False:\n"),
         Patch("oldhost_sync/store/ledger/operator_commands.py", "outcome = 'DEAD' AND unproven = 1\"", "outcome = 'DEAD'\"")),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a no-op goes before an older change of its entity",
        (Patch(LEDGER, "if is_fresh or is_no_op else None", "if is_fresh else None"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a decision ends whatever halt there is",
        (Patch("oldhost_sync/store/ledger/operator_commands.py", "    if act.epoch and not (ledger.resolved_epoch or 0) <= act.epoch <= ledger.epoch:", "    if False:"),),
        levels=(HALT_DECISIONS,),
    ),
    Mutant(
        "what may have been written is given back",
        (Patch(LEDGER, "            check(written is None,", "            check(True,"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "what follows a doubt keeps its nonce when the doubt waits again",
        (Patch("oldhost_sync/store/ledger/halt.py", "    if again:  # those after it", "    if False:  # those after it"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a second rejection makes a dead letter of what was given up",
        (Patch(LEDGER, "if fate is None or fate.outcome == Outcome.APPLIED:", "if True:"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "nonce rebound on retry",
        (Patch(LEDGER_SQL, "r.status = 'RESERVED'\"\nHIGHEST", "r.status IN ('RESERVED', 'SENT')\"\nHIGHEST"),),
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
        (Patch("oldhost_sync/store/ledger/fates.py", "    elif ending.outcome is Outcome.NO_OP:\n", "    elif False:\n"),),
        levels=(CONFORMANCE, SIMULATION),
        seeds=1500,
    ),
    Mutant(
        "resolved by resending, states in doubt trusted",
        (
            Patch(
                "oldhost_sync/store/ledger/halt.py",
                "    connection.exec_driver_sql(_FORGET_STATES_IN_DOUBT, (host, host, expected))\n",
                "",
            ),
        ),
        levels=(CONFORMANCE, SIMULATION),
        seeds=3000,
    ),
    # What stopped the writer without a word, or lost what was accepted.
    Mutant(
        "a reservation that overtakes",
        (Patch("oldhost_sync/store/ledger/reservation.py", "    return change_id is not None and change_id < row.id\n", "    return False\n"),),
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
        "found applied: its state is believed",
        (Patch(FATES, "Outcome.APPLIED, nonce=change.nonce)\n        return replace(ending, payload_hash=UNKNOWN, unproven=True,", "Outcome.APPLIED, nonce=change.nonce)\n        return replace(ending, unproven=True,"),),
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
        "an old version that comes after newer operations of its entity",
        (Patch("oldhost_sync/store/ledger/reservation.py", "        if row.priority_class == PriorityClass.LWW and (row.is_passed or self._is_passed_by(binding, row)):\n", "        if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an old version goes behind newer operations of its send",
        (Patch("oldhost_sync/store/ledger/reservation.py", "(row.is_passed or self._is_passed_by(binding, row))", "row.is_passed"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a ban that OldHost ended may begin again",
        (Patch(RECONCILIATION, "    if not ledger.ban_is_over:\n", "    if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a mark locks the ledger's row and does not write it",
        (Patch(LEDGER, "write_sending(packet, ", "lock_sending(packet.connection, "),), levels=(CLUSTER,),
    ),
    Mutant(
        "lost operations that wait again are known to the writer",
        (Patch("oldhost_sync/store/ledger/halt.py", "_REOPEN_FROM if as_they_were else _RELAY_AGAIN_FROM", "_REOPEN_FROM"),),
        levels=(CONSEQUENCES,),
    ),
)  # fmt: skip
