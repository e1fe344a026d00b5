"""What OldHost's answers mean (docs/protocol.md). It relies only on what that page says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

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

T = TypeVar("T")


def read_answer(status: int, body: bytes, nonce: int) -> Answer:
    """What `status` and `body` say about the operation sent with `nonce`."""
    fields = host_json.json_object(body)
    if fields is None:
        return Unlisted(f"status {status} without a JSON object")
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return _read_applied(fields, nonce)
    error = fields.get("error")
    if status == 422 and error == "rejected":
        return _read_rejected(fields, nonce)
    if status == 400 and error == "nonce_gap":
        expected = host_json.number(fields.get("expected_nonce"))
        return Unlisted("a gap without the expected nonce") if expected is None else Gap(expected)
    if status == 400 and error == "nonce_replay":
        return Replay(host_json.number(fields.get("expected_nonce")), host_json.seconds(fields.get("retry_after")))
    if status == 400 and error == "malformed":
        return Malformed(host_json.reason(fields.get("reason")))
    return _read_refusal(status, fields) or Unlisted(f"status {status}, not in the protocol")


def said_by(status: int, body: bytes, nonce: int) -> Said:
    """The answer to the operation with `nonce` in its own words, for people: they are data from outside."""
    fields = host_json.json_object(body) or {}
    answer = read_answer(status, body, nonce)
    is_replay = isinstance(answer, Replay)
    is_ours = fields.get("nonce", nonce) == nonce
    is_used = is_replay or (is_ours and (host_json.number(fields.get("expected_nonce")) or 0) > nonce)
    return Said(
        f"status {status}",
        words(body),
        rejects=400 <= status < 500,
        used=is_used,
        refuses=isinstance(answer, Busy | Unlisted),
    )


def read_ask(status: int, body: bytes) -> Expected | OutOfRange | Banned | Busy | ConnectionInUse | Ambiguous:
    """What `status` and `body` answer to an ask for the expected nonce."""
    fields = host_json.json_object(body)
    if fields is None:
        return _unreadable(f"status {status} without a JSON object")
    if status == 200:
        said = fields.get("expected_nonce")
        # An answer to a sync request has a nonce beside the expected one: it does not belong to this ask.
        if not host_json.is_whole(said) or "nonce" in fields:
            return _unreadable("status 200 without an expected nonce")
        expected = host_json.number(said)
        return OutOfRange(str(said)[: host_json.SAID_LENGTH_MAX]) if expected is None else Expected(expected)
    return _read_refusal(status, fields) or _unreadable(f"status {status}, not in the protocol")


def told_by_header(answer: T, seconds: float | None) -> T:
    """The answer, with what its header says where its body says nothing."""
    if seconds is None:
        return answer
    if (isinstance(answer, Banned | Replay) and answer.retry_after is None) or (
        isinstance(answer, Busy) and not answer.retry_after
    ):
        return replace(answer, retry_after=seconds)
    return answer


def _read_applied(fields: Mapping[str, Any], nonce: int) -> Answer:
    answered, expected = host_json.number(fields.get("nonce")), host_json.number(fields.get("expected_nonce"))
    if answered != nonce:
        return Unlisted(f"the answer is for nonce {answered}, not {nonce}")
    named = fields.get("expected_nonce")
    if named is None or expected == nonce + 1:
        return Applied(expected)
    # The sentence is shown to viewers and stored in Temporal: no word of OldHost's is in it (I9).
    shown = str(named)[: host_json.SAID_LENGTH_MAX] if host_json.is_whole(named) else "what is no number"
    return Applied(expected, f"OldHost says that nonce {nonce} is applied, and then expects {shown}, not {nonce + 1}")


def _read_rejected(fields: Mapping[str, Any], nonce: int) -> Answer:
    """By the protocol: consumed, unless `expected_nonce` says otherwise."""
    expected = host_json.number(fields.get("expected_nonce"))
    if expected is None and "expected_nonce" in fields:
        return Unlisted("rejected, with an invalid expected nonce")
    if expected not in {None, nonce, nonce + 1}:
        return Unlisted(f"rejected {nonce}, but expects {expected}")
    return Rejected(host_json.reason(fields.get("reason")), consumed=expected != nonce, is_told=expected is not None)


def _read_refusal(status: int, fields: Mapping[str, Any]) -> Banned | Busy | ConnectionInUse | None:
    match status, fields.get("error"):
        case 403, "banned":
            return Banned(host_json.seconds(fields.get("retry_after")))
        case 503, "busy":
            return Busy(host_json.seconds(fields.get("retry_after")) or 0.0)
        case 503, "connection_in_use":
            return ConnectionInUse()
    return None


def _unreadable(why: str) -> Ambiguous:
    return Ambiguous(why, unreadable=True)
