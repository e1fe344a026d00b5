"""What to do about open alerts, by kind."""

from __future__ import annotations

from oldhost_sync.policy.alert_kinds import KINDS
from oldhost_sync.store.ledger.halt_decision import HaltDecision


def next_steps(decision: HaltDecision | None) -> dict[str, str]:
    """`decision`: about the halt, not carried out yet."""
    steps = {kind: about.next_step for kind, about in KINDS.items()}
    return steps | ({"halted": f"Nothing to do: {decision.said}"} if decision else {})
