"""What a host's frames say (docs/frame-protocol.md). Pure, and as suspicious as the host's capabilities want it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oldhost_sync.drivers import host_json
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.events import (
    INCARNATION_LENGTH_MAX,
    Answer,
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    Said,
    Told,
    ToldFate,
    Unlisted,
    words,
)

DENIED = NoService("credentials", "OldHost refuses our credentials or our address")
UNREADABLE = NoService("unreadable", "an answer that is not in the protocol")
NOT_AS_CLAIMED = NoService("unreadable", "a number that the host can't have, by what is claimed of its numbers")
REFUSED = NoService("refused", "OldHost refuses our question")


@dataclass(frozen=True, slots=True)
class Answers:
    """Reads the answers of a host with these capabilities. `fields`: a frame's JSON object, None: it is none."""

    capabilities: Capabilities

    def ready(self, fields: Mapping[str, Any] | None) -> Ready | Told:
        if fields is None or fields.get("type") != "ready":
            return self._refusal(fields)
        incarnation = fields.get("incarnation", "")
        is_text = isinstance(incarnation, str) and incarnation.isprintable()
        if not is_text or len(incarnation) > INCARNATION_LENGTH_MAX:
            return UNREADABLE
        expected = self._number(fields.get("expected"))
        if expected is None and fields.get("expected") is not None:
            return NOT_AS_CLAIMED
        return Ready(expected, incarnation)

    def expected(self, fields: Mapping[str, Any] | None) -> Told:
        # An answer to an operation has a number beside the expected one: it does not belong to this question.
        if fields is None or fields.get("type") != "expected" or "number" in fields:
            return self._refusal(fields)
        return self._count(fields.get("expected"))

    def outcome(self, fields: Mapping[str, Any] | None, number: int, key: str) -> OutcomeTold | Told:
        """`number`, `key`: of the operation that was asked for."""
        if fields is None or fields.get("type") != "outcome":
            return self._refusal(fields)
        told = self._number(fields.get("number"))
        match self.capabilities.outcome:
            case AskedOutcomes.BY_NUMBER:
                is_ours = told == number
            case AskedOutcomes.BY_ID:
                is_ours = fields.get("key") == key
            case _:
                is_ours = True
        if not is_ours or fields.get("fate") not in list(ToldFate):
            return UNREADABLE
        fate = ToldFate(fields["fate"])
        if fate is not ToldFate.REJECTED:
            return OutcomeTold(fate, told)
        used = self._used(fields)
        return UNREADABLE if used is None else OutcomeTold(fate, told, host_json.reason(fields.get("reason")), used)

    def operation(self, fields: Mapping[str, Any] | None, number: int) -> Answer:
        """What is said about the operation with this number."""
        if fields is None:
            return Unlisted("a frame without a JSON object")
        kind = fields.get("type")
        if kind in ("applied", "rejected", "gap", "used"):
            answered = self._number(fields.get("number"))
            if answered != number:
                return Unlisted(f"the answer is for number {answered}, not {number}")
            return self._about(kind, fields, number)
        if kind == "malformed":
            return Malformed(host_json.reason(fields.get("reason")))
        if kind == "denied":
            return Unlisted(DENIED.why, refuses=DENIED)
        return _wait(fields) or Unlisted("a frame that answers no operation")

    def said(self, content: bytes, fields: Mapping[str, Any] | None, number: int, answer: Answer) -> Said:
        """The answer in its own words."""
        is_ours = self._number((fields or {}).get("number")) == number
        expected = self._number((fields or {}).get("expected"))
        is_used = isinstance(answer, Replay) or (is_ours and expected is not None and self._is_after(expected, number))
        return Said("answer", words(content), used=is_used, refuses=isinstance(answer, Busy | Unlisted))

    def _about(self, kind: str, fields: Mapping[str, Any], number: int) -> Answer:
        """What is said about our own operation."""
        can = self.capabilities
        expected = self._number(fields.get("expected"))
        match kind:
            case "applied":
                return self._applied(fields, number)
            case "rejected":
                return self._rejected(fields)
            case "gap" if can.gapless and expected is not None:
                return Gap(expected)
            case "used" if can.repeated is not Repeats.DONE_TWICE:
                return Replay(expected, host_json.seconds(fields.get("retry_after")))
        return Unlisted(f"'{kind}', which this host does not say, or not so")

    def _applied(self, fields: Mapping[str, Any], number: int) -> Applied:
        named = fields.get("expected")
        if named is None or self.capabilities.expected is Expects.NEVER:
            return Applied(None)
        expected, following = self._number(named), self._following(number)
        if expected == following:
            return Applied(expected)
        # The sentence is shown to viewers and stored in Temporal: no word of the host's is in it (I9).
        shown = str(named)[: host_json.SAID_LENGTH_MAX] if host_json.is_whole(named) else "what is no number"
        why = f"OldHost says that number {number} is applied, and then expects {shown}, not {following}"
        return Applied(expected, why)

    def _rejected(self, fields: Mapping[str, Any]) -> Answer:
        used = self._used(fields)
        if used is None:
            return Unlisted("a rejection, without saying as declared whether it has used the number")
        return Rejected(host_json.reason(fields.get("reason")), consumed=used)

    def _used(self, fields: Mapping[str, Any]) -> bool | None:
        """Whether a rejection has used its number; None: it does not say so as declared."""
        declared = {RejectionUses.YES: True, RejectionUses.NO: False}.get(self.capabilities.rejection_uses)
        used = fields.get("used", declared)
        return used if isinstance(used, bool) and declared in (None, used) else None

    def _refusal(self, fields: Mapping[str, Any] | None) -> Told:
        """An answer to a question that does not answer it."""
        match (fields or {}).get("type"):
            case "denied":
                return DENIED
            case "malformed":
                return REFUSED
        return _wait(fields or {}) or UNREADABLE

    # --------------------------------------------------------------------------------------------------- numbers

    def _count(self, value: object) -> Expected | OutOfRange | NoService:
        if not host_json.is_whole(value):
            return UNREADABLE
        told = self._number(value)
        return OutOfRange(str(value)[: host_json.SAID_LENGTH_MAX]) if told is None else Expected(told)

    def _number(self, value: object) -> int | None:
        """A number that this host can have."""
        told, can = host_json.number(value), self.capabilities
        return None if told is None or told < can.lowest or (can.modulus and told >= can.modulus) else told

    def _following(self, number: int) -> int:
        return self.capabilities.lowest if number + 1 == self.capabilities.modulus else number + 1

    def _is_after(self, expected: int, number: int) -> bool:
        """Of numbers that wrap: within the half circle that begins with ours."""
        modulus, lowest = self.capabilities.modulus, self.capabilities.lowest
        if modulus is None:
            return expected > number
        return 0 < (expected - number) % (modulus - lowest) <= (modulus - lowest) // 2


def _wait(fields: Mapping[str, Any]) -> Banned | Busy | ConnectionInUse | None:
    match fields.get("type"):
        case "banned":
            return Banned(host_json.seconds(fields.get("retry_after")))
        case "busy":
            return Busy(host_json.seconds(fields.get("retry_after")) or 0.0)
        case "in_use":
            return ConnectionInUse()
    return None
