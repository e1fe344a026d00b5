"""Wrong ideas about the wire: sessions, sends, recovery."""

from __future__ import annotations

from tests.mutants.levels import (
    BURST,
    FENCING,
    GIVING_WAY,
    MARK_TIME,
    OVERDUE,
    RECOVERY,
    SIMULATION,
    STALLED,
    UNIT,
    UNLISTED,
)
from tests.mutants.mutant import Mutant, Patch

SEND = "oldhost_sync/oldhost/send.py"
OWNER = "oldhost_sync/oldhost/wire_owner.py"
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
        (Patch(OWNER, "if isinstance(answer, Applied) and answer.surprise:", "if False:"),),
        levels=(UNLISTED,),
    ),
    Mutant(
        "SENT marked after the write",
        (
            Patch(
                OWNER,
                "            self._advance(self._queue[0])\n",
                "            self._marked_at = self._clock()\n",
            ),
            Patch(
                OWNER,
                "            reply_timeout = self._reply_timeout.wait",
                "            self._advance(claim)\n            self._marked_at = None\n            reply_timeout = self._reply_timeout.wait",
            ),
        ),
    ),
    Mutant(
        "what was marked too slowly ends the session",
        (Patch(OWNER, "in range(self._limits.renewals_max)", "in range(0)"),),
        levels=(FENCING,),
    ),
    Mutant(
        "an emergency waits for what is reserved",
        (Patch(OWNER, "gives_way = self._urgent_waits and not", "gives_way = False and not"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "the later urgent send goes first if it arrives first",
        (Patch(OWNER, "return send.sequence > self._came[send.urgent]", "return send.sequence > self._came[send.urgent] and not send.urgent"),),
        levels=(BURST,),
    ),
    Mutant(
        "urgent sends reserve again in any order",
        (Patch(OWNER, "send = min(waiting, key", "send = (max if urgent else min)(waiting, key"),),
        levels=(UNIT,),
    ),
    Mutant(
        "what is behind a rejection goes out as it was reserved",
        (Patch(OWNER, "must = gives_way or is_over or self._is_rejection_pending", "must = gives_way or is_over"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "what was bound before is given back",
        (Patch(OWNER, "for claim in self._queue if claim.operation.nonce > self._bound_through]", "for claim in self._queue]"),
         Patch(OWNER, "return max(self._last_written, self._bound_through) if loose", "return self._last_written if loose")),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "two sends reserve for one change",
        (Patch(OWNER, "return any(operation.change_id in change_ids for operation in operations)", "return False"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "timeout taken as failure",
        (
            Patch(OWNER, "            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))\n", '            return Rejected("no answer", consumed=False)\n'),
        ),
    ),
    Mutant(
        "no send deadline",
        (Patch(OWNER, "return marked_at is None or self._clock() - marked_at > self._limits.send_within_seconds", "return False"),),
        levels=(STALLED, SIMULATION),
    ),
    Mutant(
        "deadline checked too early",
        (
            Patch(
                OWNER,
                "            self._marked_at = began\n",
                "            self._marked_at = self._clock()\n",
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
        (Patch("oldhost_sync/oldhost/inquiry.py", "            case ConnectionInUse():\n                self.reply_timeout.found_unfinished(self.clock())\n", "            case ConnectionInUse():\n"),),
        levels=(OVERDUE,),
    ),
    Mutant(
        "the reply timeout is of a session",
        (Patch("oldhost_sync/oldhost/recovery.py", "            reply_timeout=self.reply_timeout,\n", "            reply_timeout=type(self.reply_timeout)(),\n"),),
        levels=(OVERDUE,),
    ),
    Mutant(
        "what somebody else may have sent since is forgotten",
        (Patch("oldhost_sync/oldhost/expected_nonce.py", "        if epoch != self.epoch + 1:\n", "        if False:\n"),),
        levels=(UNIT,),
    ),
    Mutant(
        "not applied is believed as soon as OldHost is reached",
        (Patch("oldhost_sync/oldhost/inquiry.py", "                reached[0].close()\n                self._rest(late_seconds)\n", "                reached[0].close()\n"),),
        levels=(RECOVERY,),
    ),
    Mutant(
        "an urgent operation is marked only when the one before it has ended",
        (Patch(OWNER, "must = gives_way and self._marked_at is None and self._shared.is_open", "must = False"),),
        levels=(GIVING_WAY,),
    ),
    Mutant(
        "a send reserves only when the wire is free",
        (Patch(OWNER, "        if is_open and (send := self._next_to_reserve())", "        if is_free and is_open and (send := self._next_to_reserve())"),),
        levels=(MARK_TIME,),
    ),
    Mutant(
        "a send whose thread is gone keeps the others waiting",
        (Patch(OWNER, '        if not send.is_over:\n            self._shared.close("unexpected error")\n', ""),),
        levels=(UNIT,),
    ),
    Mutant(
        "a probe takes the wire from a send",
        (Patch("oldhost_sync/oldhost/session.py", "self.is_open and self._owner.is_idle and self._shared.try_wire()", "self.is_open and self._shared.try_wire()"),),
        levels=(RECOVERY,),
    ),
)  # fmt: skip
