"""Wrong ideas about withdrawing what waits."""

from __future__ import annotations

from tests.mutants.levels import CONFORMANCE, UNIT, WITHDRAWALS, WITHDRAWALS_BY_HTTP
from tests.mutants.mutant import Mutant, Patch

STORE = "oldhost_sync/store/intake/withdrawal.py"
OUTCOMES = "oldhost_sync/policy/machine/outcomes.py"

MUTANTS = (
    Mutant(
        "what has a nonce is withdrawn",
        (
            Patch(STORE, "if not row.is_bound]\n        ids = _withdraw", "]\n        ids = _withdraw"),
            Patch(STORE, "AND NOT {HAS_NONCE} AND NOT {_MAY_ARRIVE} ORDER", "AND NOT {_MAY_ARRIVE} ORDER"),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "what may still arrive at OldHost is withdrawn",
        (
            Patch(STORE, "if not row.is_bound]\n        ids = _withdraw", "]\n        ids = _withdraw"),
            Patch(STORE, "AND NOT {_MAY_ARRIVE} ORDER", "AND (1 OR {_MAY_ARRIVE}) ORDER"),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an unsure change that is retried is withdrawn, though OldHost may have it",
        (Patch(STORE, "({MAY_ARRIVE} OR a.status = 'UNSURE')", "{MAY_ARRIVE}"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a fate that waits for its row is no fate",
        (
            Patch(STORE, "{{conditions}} AND NOT {IS_PENDING} ORDER", "{{conditions}} ORDER"),
            Patch(STORE, 'f"AND NOT {IS_PENDING} AND NOT {HAS_NONCE}', 'f"AND NOT {HAS_NONCE}'),
        ),
        levels=(WITHDRAWALS,),
    ),
    Mutant(
        "what came after the preview is withdrawn, too",
        (Patch(STORE, "self.wanted, self._after, self.up_to, AT_ONCE", "self.wanted, self._after, 2**62, AT_ONCE"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "the writer is not told of the older state that waits",
        (Patch(STORE, "            refs.append(as_ref(row[:6]))", "            as_ref(row[:6])"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an older state is sent though newer operations of its entity were",
        (Patch(STORE, "        if row.is_passed:\n", "        if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an older state in flight is superseded",
        (Patch(STORE, "row.head, key, unless_bound=True)", "row.head, key)"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "the shadow goes on showing what was withdrawn",
        (Patch(STORE, "    _show_older(connection, host, _newest(rows))\n", ""),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a withdrawal waits for a unit that an application has locked",
        (
            Patch(
                "oldhost_sync/store/intake/shadow.py",
                "AND id IN ({{ids}}) FOR UPDATE SKIP LOCKED",
                "AND id IN ({{ids}}) FOR UPDATE",
            ),
        ),
        levels=(WITHDRAWALS,),
    ),
    Mutant(
        "an undo puts a state over a newer one",
        (Patch(STORE, "in unlocked and row.id not in passed]", "in unlocked]"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a withdrawal can be undone for ever",
        (Patch(STORE, "    if act.ms_ago > UNDO_SECONDS_MAX * 1000:\n", "    if False:\n"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a withdrawn state ends the older ones that are read at that moment",
        (
            Patch(
                "oldhost_sync/policy/machine/outstanding_changes.py", "        if replaces and ref.", "        if ref."
            ),
        ),
        levels=(UNIT,),
    ),
    Mutant(
        "a writer that missed the message forgets the older state",
        (
            Patch(
                OUTCOMES,
                "            if reads_older and outcome is Outcome.WITHDRAWN",
                "            if False and outcome is Outcome.WITHDRAWN",
            ),
        ),
        levels=(UNIT,),
    ),
    Mutant(
        "for each withdrawn change its entity is read again",
        (Patch(OUTCOMES, "WITHDRAWN.value), now_ms, reads_older=False)", "WITHDRAWN.value), now_ms)"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a withdrawn change is taken from the send that has it",
        (
            Patch(
                OUTCOMES,
                "            if change_id in self.coalescer.waiting:\n                self.record(",
                "            if change_id in self.coalescer.waiting or change_id in self.in_flight:\n                self.record(",
            ),
        ),
        levels=(UNIT,),
    ),
    Mutant(
        "a filter that says nothing is everything",
        (Patch("oldhost_sync/api/routes/withdrawals.py", "        if not wanted.given:\n", "        if False:\n"),),
        levels=(WITHDRAWALS_BY_HTTP,),
    ),
)
