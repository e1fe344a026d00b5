"""How certain a fate is (I14): the stored mark `unproven` has one word for each fate, for people and programs."""

from __future__ import annotations

from typing import Any


def unconfirmed(outcome: str | None, unproven: Any) -> bool:
    """Applied, as far as the used nonce shows or an operator said: no answer of OldHost confirms it."""
    return bool(unproven) and outcome == "APPLIED"


def unsure(outcome: str | None, unproven: Any) -> bool:
    """A dead letter of which OldHost's answer says neither applied nor rejected."""
    return bool(unproven) and outcome == "DEAD"


def with_certainty(row: dict[str, Any]) -> dict[str, Any]:
    """The row with `unconfirmed` and `unsure` in place of `unproven`."""
    unproven = row.pop("unproven")
    outcome = row.get("outcome")
    return {**row, "unconfirmed": unconfirmed(outcome, unproven), "unsure": unsure(outcome, unproven)}
