"""Reports webhooks that do not accept fates, by the rows of their cursors: so it does not matter which relay sends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.webhook_cursors import WebhookState, states

LATE = "webhook-late"
LATE_LOOK_SECONDS = 15.0
# A fate that waits for less is on its way.
BEHIND_SECONDS = 60


@dataclass(eq=False)
class LateWebhooks:
    """A duty (see `duty`) of the whole process. `webhooks`: host and name of those that are set; the alert of another
    one is closed.
    """

    name = "looking for late webhooks"
    host = "all hosts"
    pause_s = LATE_LOOK_SECONDS

    transactions: Transactions
    hosts: Sequence[str]
    webhooks: Collection[tuple[str, str]]
    conditions: Conditions

    async def run_once(self, now: float) -> float:
        for state in await self.transactions.run(lambda connection: states(connection, self.hosts)):
            fact = late_fact(state) if (state.host, state.name) in self.webhooks else None
            self.conditions.found(state.host, LATE, fact, now, f"{LATE}:{state.name}")
        return LATE_LOOK_SECONDS


def late_fact(state: WebhookState) -> Fact | None:
    if state.is_disabled:
        return Fact(f"Webhook {state.name} answered 410, so it is disabled until somebody replays.", at_once=True)
    if state.behind_s < BEHIND_SECONDS:
        return None
    return Fact(f"Webhook {state.name} does not keep up with the fates: {state.trouble or 'it accepts them slowly'}.")
