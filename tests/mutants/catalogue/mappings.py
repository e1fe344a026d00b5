"""Wrong ideas about mappings and hosts that differ: what is sent, what is a no-op, who is refused, whose value counts."""

from __future__ import annotations

from tests.mutants.levels import HOSTS_FILE, MAPPINGS, UNIT
from tests.mutants.mutant import Mutant, Patch

MAPPING = "oldhost_sync/drivers/mapping.py"
RESERVATION = "oldhost_sync/store/ledger/reservation.py"

STORED = "oldhost_sync/store/mappings.py"
SETTINGS = "oldhost_sync/settings.py"

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
    Mutant(
        "a version that was replaced may come again with other rules",
        (Patch(STORED, ".scalar_one() != text:\n", ".scalar_one() != text and before.label == mapping.label:\n"),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "the code of another package may give another body each time",
        (Patch(MAPPING, "        if is_of_code and self.encode(change) != encoded:\n", "        if False:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what code says of a change is told with the change's values",
        (Patch(MAPPING, '            why = f"raises {type(error).__name__}"\n', '            why = f"raises {error!r}"\n'),),
        levels=(UNIT,),
    ),
    Mutant(
        "a worker that lacks the code gives the change up",
        (Patch(RESERVATION, "    except NotMapped as error:\n", "    except (NotMapped, CodeMissing) as error:\n"),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "a state keeps the mapping that made it first",
        (Patch("oldhost_sync/store/ledger/fates.py", '"nonce = VALUES(nonce), mapping = VALUES(mapping), ', '"nonce = VALUES(nonce), '),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "a resync of one unit counts as one of all",
        (Patch("oldhost_sync/store/read/host_condition.py", '"AND r.unit_id IS NULL AND r.created_at', '"AND r.created_at'),),
        levels=(MAPPINGS,),
    ),
    Mutant(
        "the deployment's values go before the host's own",
        (Patch(SETTINGS, "{**self._shared(), **own}", "{**own, **self._shared()}"),),
        levels=(HOSTS_FILE,),
    ),
    Mutant(
        "a host's files are looked for in the folder of the process",
        (Patch("oldhost_sync/hosts_file.py", "file.parent / value if", "Path(value) if"),),
        levels=(HOSTS_FILE,),
    ),
    Mutant(
        "the writer promises the same for every host",
        (Patch("oldhost_sync/policy/tuning.py", "return Promises(self.consistency_ms, self.emergency_ms)", "return USUAL_PROMISES"),),
        levels=(UNIT,),
    ),
)  # fmt: skip
