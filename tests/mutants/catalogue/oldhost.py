"""Wrong ideas about the wire: sessions, sends, recovery."""

from __future__ import annotations

from tests.mutants.levels import BURST, FENCING, GIVING_WAY, OVERDUE, RECOVERY, SIMULATION, STALLED, UNIT, UNLISTED
from tests.mutants.mutant import Mutant, Patch

SEND = "oldhost_sync/oldhost/send.py"
PIPELINE = "oldhost_sync/oldhost/nonce_pipeline.py"
WIRE = "oldhost_sync/drivers/http/oldhost.py"
RESPONSE = "oldhost_sync/drivers/http/response.py"
REPLY_TIMEOUT = "oldhost_sync/oldhost/answer_times.py"

MUTANTS = (
    Mutant(
        "a smaller reading is believed though a larger one was told",
        (Patch("oldhost_sync/oldhost/expected_nonce.py", "if expected >= self.told or", "if True or"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "what a refusal said of our nonce is forgotten",
        (Patch("oldhost_sync/store/ledger/maria_ledger.py", "        if said.used:\n", "        if False:\n"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "an unlisted answer is not kept",
        (Patch(SEND, "            elif isinstance(answer, Unlisted) and said is not None:\n", "            elif False:\n"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "an answer that calls our nonce applied is doubted for what else it says",
        (Patch(WIRE, "    return Applied(expected, f", "    return Unlisted(f"),),
        levels=(UNIT,),
    ),
    Mutant(
        "an answer that calls our nonce applied surprises nobody",
        (Patch(SEND, "if isinstance(answer, Applied) and answer.surprise:", "if False:"),),
        levels=(UNLISTED,),
    ),
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
        "what was marked too slowly ends the session",
        (Patch(SEND, "in range(self._limits.renewals_max)", "in range(0)"),),
        levels=(FENCING,),
    ),
    Mutant(
        "an emergency waits for what is reserved",
        (Patch(PIPELINE, "gives_way = urgent_waits and not", "gives_way = False and not"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "the later urgent send goes first if it arrives first",
        (Patch(PIPELINE, "return send.sequence > self._came[send.urgent]", "return send.sequence > self._came[send.urgent] and not send.urgent"),),
        levels=(BURST,),
    ),
    Mutant(
        "urgent sends reserve again in any order",
        (Patch(PIPELINE, "other.sequence < send.sequence and not other.reserved for", "other.sequence < send.sequence and not (other.urgent or other.reserved) for"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what is behind a rejection goes out as it was reserved",
        (Patch(PIPELINE, "owners and (rejected or gives_way or ends)", "owners and (gives_way or ends)"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "what was bound before is given back",
        (Patch(PIPELINE, "return max(self._on_wire, self._next - 1, self._bound_through)", "return max(self._on_wire, self._next - 1)"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "two sends reserve for one change",
        (Patch(PIPELINE, "nonce > self._recorded and change_id in change_ids", "nonce < 0 and change_id in change_ids"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "timeout taken as failure",
        (
            Patch(SEND, "            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))\n", '            return Rejected("no answer", consumed=False)\n'),
        ),
    ),
    Mutant(
        "no send deadline",
        (Patch(SEND, "return self._clock() - self._marked_at > self._limits.send_within_seconds", "return False"),),
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
        "answer of another nonce accepted",
        (Patch(WIRE, "    if answered != nonce:\n", "    if answered is None:\n"),
         Patch(WIRE, "    if named is None or expected == nonce + 1:\n", "    if expected is not None:\n")),
        levels=(SIMULATION, UNIT),
        seeds=300,
    ),
    Mutant(
        "bytes behind an answer are not seen",
        (Patch(RESPONSE, "        self._parse(data[:-1])\n", '        self._parse(b"")\n'),
         Patch(RESPONSE, "        self._parse(data[-1:])\n", "        self._parse(data)\n")),
        levels=(UNIT,),
    ),
    Mutant(
        "an answer in another protocol is read",
        (Patch(RESPONSE, 'if not self._has_begun and data[:1] != b"H":', "if not data:"),),
        levels=(UNIT,),
    ),
    Mutant(
        "a send that was refused as busy counts",
        (Patch("oldhost_sync/oldhost/refusals.py", "    Busy: Refusal(uncounts=True),\n", "    Busy: Refusal(uncounts=False),\n"),),
        levels=(UNIT, SIMULATION),
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
        (Patch("oldhost_sync/oldhost/expected_nonce.py", "        if epoch != self.epoch + 1:\n", "        if False:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "not applied is believed as soon as OldHost is reached",
        (Patch("oldhost_sync/oldhost/recovery.py", "                reached[0].close()\n                self._rest(late_seconds)\n", "                reached[0].close()\n"),),
        levels=(RECOVERY,),
    ),
    Mutant(
        "an urgent operation is marked only when the one before it has ended",
        (Patch(SEND, "            self._release_nonces()  # so that the urgent operation is marked when the answer arrives\n", ""),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "a probe takes the wire from a send",
        (Patch("oldhost_sync/oldhost/session.py", "self.is_open and self._pipeline.is_idle and self._pipeline.try_wire()", "self.is_open and self._pipeline.try_wire()"),),
        levels=(RECOVERY,),
    ),
)  # fmt: skip
