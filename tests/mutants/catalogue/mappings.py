"""Wrong ideas about mappings: what is sent, what is a no-op, and who is refused."""

from __future__ import annotations

from tests.mutants.levels import MAPPINGS, UNIT
from tests.mutants.mutant import Mutant, Patch

MAPPING = "oldhost_sync/drivers/mapping.py"
RESERVATION = "oldhost_sync/store/ledger/reservation.py"

MUTANTS = (
    Mutant(
        "bound bytes are made anew by the mapping of now",
        (Patch(RESERVATION, "    encoded = Encoded(candidate.request_body, made_by, state_hash)\n", "    encoded = mapping.encode(_change(candidate))\n"),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "what another mapping's bytes mean is guessed",
        (Patch(RESERVATION, " if made_by == mapping.label else UNKNOWN\n", "\n"),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "a new mapping is noticed at the next start only",
        (Patch("oldhost_sync/store/ledger/maria_ledger.py", "        if (label or OLDHOST.label) != self._mapping.label:\n", "        if self._mapping is OLDHOST:\n"),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "a new mapping's equal state is a no-op",
        (Patch(MAPPING, 'payload_hash({"by": self._by, "body": state})', 'payload_hash({"body": state})'),),
        levels=(UNIT,),
    ),
    Mutant(
        "a change's id is part of OldHost's state",
        (Patch(MAPPING, "for output, value in given if output.is_of_state]", "for output, value in given]"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a batch may have what can't be sent",
        (Patch("oldhost_sync/store/intake/batch_recorder.py", "        self._check_mapped([change for _, change in new])\n", ""),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "a change that was scheduled is refused when it is due",
        (Patch("oldhost_sync/store/intake/change_recorder.py", "    if not has_key:  # one that was scheduled is accepted: if it can't be sent by now, it becomes a dead letter\n", "    if True:\n"),),
        levels=(MAPPINGS,),
    ),
)  # fmt: skip
