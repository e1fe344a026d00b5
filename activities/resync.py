"""Requests the nightly resync: writes a row that the relay works on."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection, Engine
from temporalio import activity

from oldhost_sync.policy.actor import Actor, Channel
from oldhost_sync.store.intake.resync import oldest_unfinished, request_resync
from oldhost_sync.store.transactions import run_in_transaction
from workflows.messages import NightlyResync

# The actor is Temporal's Schedule, not a person.
SCHEDULE = Actor("nightly-resync", Channel.TEMPORAL, verified=None)


@dataclass(frozen=True, slots=True)
class ResyncActivities:
    """Works on the database only; has no state."""

    engine: Engine

    @activity.defn(no_thread_cancel_exception=True)
    def request_nightly_resync(self, nightly: NightlyResync) -> int:
        """The number of the resync; if one is still unfinished, its number, and no second one is requested."""

        def ask(connection: Connection) -> int:
            under_way = oldest_unfinished(connection, nightly.host)
            if under_way is not None:
                return under_way.resync_id
            everything = {"property_id": None, "unit_id": None}
            return request_resync(connection, nightly.host, **everything, operator=SCHEDULE, reason="every night")

        return run_in_transaction(self.engine, ask)
