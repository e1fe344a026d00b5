"""What a host's answers mean, by patterns that its options have: a status and values in the body → an event.

No two patterns of different meaning fit the same answer (`options.py` refuses such), and no answer but a 2xx with a
sign of its own is an apply: a log-in page has status 200, too. What fits none is in no pattern: it proves nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oldhost_sync.drivers import host_json
from oldhost_sync.drivers.events import (
    Ambiguous,
    Answer,
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    Gap,
    Malformed,
    OutOfRange,
    Rejected,
    Replay,
    Said,
    Unlisted,
    words,
)
from oldhost_sync.drivers.mapping import MISSING, step, tokens_of

# By meaning: where its answer may name what (JSON pointers), and of these what it must.
MEANINGS = {
    "applied": (("number", "expected"), ()),
    "rejected": (("number", "expected", "reason"), ()),
    "gap": (("expected",), ("expected",)),
    "replay": (("expected", "seconds"), ()),
    "banned": (("seconds",), ()),
    "busy": (("seconds",), ()),
    "in_use": ((), ()),
    "malformed": (("reason",), ()),
    "expected": (("expected",), ("expected",)),
}
OF_QUESTIONS = frozenset({"expected", "banned", "busy", "in_use"})
OF_OPERATIONS = frozenset(MEANINGS) - {"expected"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """`meaning`: of MEANINGS; `status`: any of them; `where`: values that the body has, by pointers; `named`: pointers
    by what stands there.
    """

    meaning: str
    status: frozenset[int]
    where: tuple[tuple[str, Any], ...] = ()
    number: str = ""
    expected: str = ""
    seconds: str = ""
    reason: str = ""

    def fits(self, status: int, body: Any) -> bool:
        return status in self.status and all(is_same(_at(body, pointer), value) for pointer, value in self.where)


@dataclass(frozen=True, slots=True)
class Patterns:
    """`rejection_uses`: whether a rejection that names no expected number uses its own; None: that is asked."""

    patterns: tuple[Pattern, ...]
    rejection_uses: bool | None = None

    def read_answer(self, status: int, body: bytes, number: int) -> Answer:
        """What an answer says about the operation sent with `number`."""
        fields = _json(body)
        pattern = self._fitting(status, body, fields, OF_OPERATIONS)
        if pattern is None:
            return Unlisted(f"status {status}, in no pattern")
        if pattern.number and (said := host_json.number(_at(fields, pattern.number))) != number:
            return Unlisted(f"the answer is for number {said}, not {number}")
        expected = _at(fields, pattern.expected)
        match pattern.meaning:
            case "applied":
                return _applied(expected, number)
            case "rejected":
                return self._rejected(expected, host_json.reason(_at(fields, pattern.reason)), number)
            case "gap":
                wanted = host_json.number(expected)
                return Unlisted("a gap without the expected number") if wanted is None else Gap(wanted)
            case "replay":
                return Replay(host_json.number(expected), _seconds(fields, pattern))
            case "malformed":
                return Malformed(host_json.reason(_at(fields, pattern.reason)))
        return _refused(fields, pattern)

    def read_ask(self, status: int, body: bytes) -> Expected | OutOfRange | Banned | Busy | ConnectionInUse | Ambiguous:
        """What an answer says to the question for the expected number."""
        fields = _json(body)
        pattern = self._fitting(status, body, fields, OF_QUESTIONS)
        if pattern is None:
            return Ambiguous(f"status {status}, in no pattern", unreadable=True)
        if pattern.meaning != "expected":
            return _refused(fields, pattern)
        said = _at(fields, pattern.expected)
        if not host_json.is_whole(said):
            return Ambiguous("no expected number", unreadable=True)
        expected = host_json.number(said)
        return OutOfRange(str(said)[: host_json.SAID_LENGTH_MAX]) if expected is None else Expected(expected)

    def said_by(self, status: int, body: bytes, number: int) -> Said:
        """The answer to the operation with `number` in its own words, for people: they are data from outside."""
        fields, answer = _json(body), self.read_answer(status, body, number)
        pattern = self._fitting(status, body, fields, OF_OPERATIONS)
        is_ours = pattern is not None and not (pattern.number and _at(fields, pattern.number) != number)
        expected = host_json.number(_at(fields, pattern.expected)) if pattern else None
        is_used = isinstance(answer, Replay) or (is_ours and (expected or 0) > number)
        return Said(
            f"status {status}",
            words(body),
            rejects=400 <= status < 500,
            used=is_used,
            refuses=isinstance(answer, Busy | Unlisted),
        )

    def _fitting(self, status: int, body: bytes, fields: Any, meanings: frozenset[str]) -> Pattern | None:
        if body.lstrip()[:1] == b"<":  # a page for people
            return None
        return next((one for one in self.patterns if one.meaning in meanings and one.fits(status, fields)), None)

    def _rejected(self, expected: Any, reason: str, number: int) -> Answer:
        if expected is MISSING:
            uses = self.rejection_uses
            return Rejected(reason, consumed=uses is not False, is_told=uses is not None)
        wanted = host_json.number(expected)
        if wanted not in {number, number + 1}:
            return Unlisted(f"rejected {number}, but expects {'what is no number' if wanted is None else wanted}")
        return Rejected(reason, consumed=wanted != number)


def _applied(named: Any, number: int) -> Applied:
    expected = host_json.number(named)
    if named is MISSING or named is None or expected == number + 1:
        return Applied(expected)
    shown = str(named)[: host_json.SAID_LENGTH_MAX] if host_json.is_whole(named) else "what is no number"
    return Applied(expected, f"OldHost says that nonce {number} is applied, and then expects {shown}, not {number + 1}")


def _refused(fields: Any, pattern: Pattern) -> Banned | Busy | ConnectionInUse:
    match pattern.meaning:
        case "banned":
            return Banned(_seconds(fields, pattern))
        case "busy":
            return Busy(_seconds(fields, pattern) or 0.0)
    return ConnectionInUse()


def _seconds(fields: Any, pattern: Pattern) -> float | None:
    return host_json.seconds(_at(fields, pattern.seconds))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return MISSING


def _at(value: Any, pointer: str) -> Any:
    """What stands there; MISSING where nothing does, or no pointer is given."""
    for token in tokens_of(pointer) if pointer else ():
        value = step(value, token)
    return value if pointer else MISSING


def is_same(value: object, wanted: object) -> bool:
    """Equal, and of one kind: 1 is not True."""
    return type(value) is type(wanted) and value == wanted
