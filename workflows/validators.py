"""Validators of updates. A ValueError says what is wrong; a refused update leaves nothing in the history."""

from __future__ import annotations

import json
from typing import Any

from oldhost_sync.fields.change import FLUSH_ONE_OR_ALL, read_change
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from workflows import intake, messages
from workflows.messages import OperatorRequest

# Longer than a SHA-256 in hexadecimal digits.
SIGNATURE_TEXT_MAX = 128


def check_urgent_change(change: dict[str, Any]) -> None:
    """For `apply_now`: a valid change without `not_before`."""
    check_change(change)
    if change.get("not_before") is not None:
        raise ValueError("apply_now takes no not_before: leave it out, or submit the change")


def check_change(change: dict[str, Any]) -> None:
    """Complete, and of a size that fits into an activity's input."""
    read_change(change)
    if len(json.dumps(change)) > intake.CHANGE_BYTES_MAX:
        raise ValueError(f"the change is larger than {intake.CHANGE_BYTES_MAX} bytes")


def check_named(request: OperatorRequest) -> None:
    """For every operator's act: who and why, in text that can be recorded."""
    if not request.operator.strip() or not request.reason.strip():
        raise ValueError("say who you are (operator) and why (reason): both are recorded")
    for name, text in (
        ("operator", request.operator),
        ("reason", request.reason),
        ("entity_id", request.entity_id or ""),
    ):
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(f"{name} is longer than {TEXT_LENGTH_MAX} characters")
        if why := messages.why_unprintable(text, lines=name == "reason"):
            raise ValueError(f"{name} can't be recorded: {why}")
    _check_signature(request)


def _check_signature(request: OperatorRequest) -> None:
    """Of a size that history can hold; it is verified where the act is recorded."""
    signature = request.signature or messages.ActSignature()
    for name, text in (("channel", request.channel), ("nonce", signature.nonce), ("digest", signature.digest)):
        if len(text) > SIGNATURE_TEXT_MAX or not text.isascii():
            raise ValueError(f"{name} is not what the API sends: leave channel and signature out")


def check_flush(request: OperatorRequest) -> None:
    check_named(request)
    if bool(request.entity_type) != bool(request.entity_id):
        raise ValueError(FLUSH_ONE_OR_ALL)


def check_resolve(request: OperatorRequest) -> None:
    check_named(request)
    if request.mode not in tuple(messages.ResolveMode):
        raise ValueError("mode must be 'resend' (send the ledger's operations again) or 'adopt' (take OldHost's count)")
