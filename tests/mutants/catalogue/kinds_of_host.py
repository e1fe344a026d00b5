"""Wrong ideas about what a kind of host proves after an ambiguous end: one for each row of the table, and more."""

from __future__ import annotations

from tests.mutants.levels import CONFORMANCE, KINDS_OF_HOST, NUMBERING_UNIT, REFUSALS_UNIT
from tests.mutants.mutant import Mutant, Patch

AMBIGUITY = "oldhost_sync/drivers/ambiguity.py"
LEDGER = "oldhost_sync/oldhost/ledger.py"
INQUIRY = "oldhost_sync/oldhost/inquiry.py"
RECONCILIATION = "oldhost_sync/store/ledger/reconciliation.py"
QUESTIONS = "oldhost_sync/oldhost/expected_nonce.py"
CONNECTION = "oldhost_sync/oldhost/shared_connection.py"
OWNER = "oldhost_sync/oldhost/wire_owner.py"
HALT = "oldhost_sync/store/ledger/halt.py"
FATES = "oldhost_sync/store/ledger/fates.py"
REFUSALS = "oldhost_sync/oldhost/refusals.py"
NUMBERING = "oldhost_sync/oldhost/numbers.py"

MUTANTS = (
    # -------------------------------------------------------------------------------------- one for each row of the table
    Mutant(
        "a count that proves applied proves only used",
        (Patch(AMBIGUITY, "Counts.EXPECTED, proves_applied=True)", "Counts.EXPECTED)"),),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "where a count proves used, nobody asks what became of an operation",
        (
            Patch(
                AMBIGUITY,
                'outcomes can be asked", Counts.EXPECTED, outcomes=True',
                'outcomes can be asked", Counts.EXPECTED',
            ),
        ),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "an outcome that the host does not know counts as not taken",
        (
            Patch(
                LEDGER, "if told.fate is ToldFate.NOT_TAKEN)", "if told.fate in {ToldFate.NOT_TAKEN, ToldFate.UNKNOWN})"
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a rejection that used no number counts as one that did",
        (Patch(INQUIRY, "told.fate if told.consumed else ToldFate.NOT_TAKEN", "told.fate"),),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "what became of a change is what became of its retry",
        (
            Patch(INQUIRY, "if by_key and row.tried_before and told.fate", "if False and told.fate"),
            Patch(INQUIRY, "(by_key and not row.tried_before)", "by_key"),
        ),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "the last outcome's number is the next one",
        (Patch(QUESTIONS, "self._following(last.number) if last.consumed else last.number", "last.number"),),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "a host that was restarted still repeats its last answer",
        (
            Patch(
                INQUIRY,
                "if not ready.incarnation or ready.incarnation != taken.incarnation:",
                "if not ready.incarnation:",
            ),
        ),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "a refusal of an operation that was sent before does not count as used",
        (
            Patch(
                AMBIGUITY,
                "        return not self.asks\n\n    @property\n    def one_in_doubt",
                "        return False\n\n    @property\n    def one_in_doubt",
            ),
        ),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "an operation of which nobody knows is sent again",
        (Patch(RECONCILIATION, "    if is_resent or evidence.resends is not Resends.NEVER:\n", "    if True:\n"),),
        levels=(CONFORMANCE,),
    ),
    # ------------------------------------------------------------------------------------------------------------- more
    Mutant(
        "a second operation is marked at a host that tells nothing",
        (
            Patch(
                OWNER,
                "        if self._on_wire is not None and self._shared.plan.one_in_doubt:\n            return False\n",
                "",
            ),
        ),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "a number that may be used is given to another operation",
        (
            Patch(
                RECONCILIATION,
                "    if evidence.proves_free(expected):\n        given_up",
                "    if True:\n        given_up",
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a type that may be sent twice is so in any class",
        (
            Patch(
                RECONCILIATION,
                "is_resent = row.priority_class == PriorityClass.LWW and row.event_type",
                "is_resent = row.event_type",
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a halt about one operation leaves the fates of the others open",
        (
            Patch(
                RECONCILIATION,
                "        _end_used(connection, host, epoch, expected, list(sent), evidence)\n        connection",
                "        connection",
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an operator's word about one operation is about none",
        (
            Patch(
                HALT,
                "    return int(first.nonce) + 1 if is_used else int(first.nonce)\n",
                "    return int(first.nonce)\n",
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "what was called a replay goes again with its number",
        (
            Patch(
                HALT,
                'is_used = is_replay or mode == "adopt"',
                'is_used = mode == "adopt"',
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an operator who ends any halt speaks about what is in doubt",
        (
            Patch(
                HALT,
                "    if not is_replay and not str(ledger.halted).startswith(NOBODY_KNOWS):\n        return None\n",
                "",
            ),
        ),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "an operator's word about one operation is about those behind it, too",
        (Patch(HALT, "    if not goes_again:\n        return said", "    if False:\n        return said"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a no to one of several sends is about the first",
        (Patch(FATES, "if row.said_rejects and not (repeated and row.sends > 1):", "if row.said_rejects:"),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a gap at a host that can't be asked is tried for ever",
        (Patch(REFUSALS, "if isinstance(answer, Gap) and not plan(can).has_count:", "if False:"),),
        levels=(REFUSALS_UNIT,),
    ),
    Mutant(
        "a host that refuses a replay bans us, too",
        (Patch(REFUSALS, "bans=can.repeated is Repeats.PUNISHED,", "bans=True,"),),
        levels=(REFUSALS_UNIT,),
    ),
    # ---------------------------------------------------------------------------------------------------------- numbers
    Mutant(
        "a number that wraps is the one of the first round",
        (Patch(NUMBERING, "        if self.modulus is None or near is None:\n", "        if True:\n"),),
        levels=(NUMBERING_UNIT, KINDS_OF_HOST),
    ),
    Mutant(
        "a new beginning is followed though nobody has declared it",
        (Patch(INQUIRY, "self.capabilities.resets is Resets.DAY and told == lowest", "told == lowest"),),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "the lowest number is a new beginning, though it is the next one",
        (Patch(INQUIRY, "told == lowest and not fits else None", "told == lowest else None"),),
        levels=(KINDS_OF_HOST,),
    ),
    Mutant(
        "what was sent before a new beginning is judged by the new count",
        (Patch(INQUIRY, "        if begins_with is not None:\n            expected = None\n", ""),),
        levels=(KINDS_OF_HOST,),
    ),
)
