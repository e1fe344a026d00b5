"""What every ledger is asked through: its world, and how the parts of the suite send and halt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from oldhost_sync.drivers.events import Applied, Rejected
from oldhost_sync.oldhost.ledger import Answered, Count, Evidence, Ledger, Reserved
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, PriorityClass
from oldhost_sync.store.intake.withdrawal import WithdrawalPreview
from oldhost_sync.store.outbox.books import Books

SETTLE_SECONDS = 10.0


class LedgerWorld(Protocol):
    """A ledger and what the suite must see and do around it. Ages are by the ledger's own clock."""

    ledger: Ledger

    def record(
        self,
        entity_id: str = "u1",
        event_type: str = "booking_created",
        payload: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        source: str = "python",
    ) -> int: ...

    def classify(self, event_type: str, priority_class: PriorityClass) -> None:
        """Decide the class of the changes recorded from now on."""

    def age(self, seconds: float) -> None:
        """Let `seconds` pass for rows SENT and bans."""

    def accepted_at_ms(self, change_id: int) -> int: ...

    def outcome(self, change_id: int) -> tuple[str | None, int | None]: ...

    def sync_status(self, entity_id: str) -> str: ...

    def row(self, nonce: int) -> tuple[int, str, bytes] | None:
        """Change id, status and body of the row that binds `nonce`."""

    def archived(self) -> list[int]:
        """Nonces of rows that no longer bind theirs."""

    def counts(self) -> tuple[int | None, int | None]:
        """`last_applied_nonce`, `next_nonce`."""

    def decide(
        self,
        action: str,
        *,
        change_id: int | None = None,
        mode: str | None = None,
        count: Count | None = None,
        epoch: int = 0,
        expected: int | None = None,
    ) -> str:
        """An operator's decision; gives why it was refused, or an empty text.

        `count`: what OldHost expects then; None: what the halt tells, or what the ledger expects.
        """

    def banned_for_s(self) -> float:
        """How long ago the last ban began."""

    def shown(self) -> int | None:
        """What OldHost expected when it was halted, as operators see it."""

    def preview(self, **wanted: Any) -> WithdrawalPreview: ...

    def withdraw(self, *, up_to: int | None = None, **wanted: Any) -> Withdrawn:
        """All that a filter finds, and what the writer is told; without one, all that waits."""

    def undo(self, act_id: int) -> tuple[int, int]:
        """How many were recorded anew, and how many left out."""

    def age_withdrawals(self, seconds: float) -> None: ...

    def waiting(self) -> list[tuple[int, str, str]]:
        """Id, unit and event type of each change without a fate, in order."""

    def shadow(self, entity_id: str) -> dict[str, Any]: ...

    def unit(self, entity_id: str) -> tuple[str | None, str | None, int | None]:
        """Its status and name, and its newest change if that has no fate."""

    def books(self) -> Books: ...


@dataclass
class Withdrawn:
    """An act, carried out."""

    act_id: int
    withdrawn: int
    bound: int
    locked: int
    refs: list[ChangeRef]


def applied(operation: Reserved) -> Answered:
    return Answered(operation, Applied(operation.nonce + 1))


def reserved(entry: Reserved | ChangeResult) -> Reserved:
    assert isinstance(entry, Reserved), entry
    return entry


class LedgerSuite:
    """What the parts of the suite share."""

    @pytest.fixture
    def epoch(self, world: LedgerWorld) -> int:
        """The epoch of a first session, numbering from 501."""
        taken = world.ledger.take_over("first")
        world.ledger.adopt_first(taken.epoch, 501)
        return taken.epoch

    def reserve(self, world: LedgerWorld, epoch: int, *change_ids: int) -> list[Reserved]:
        return [reserved(entry) for entry in world.ledger.reserve(epoch, change_ids)]

    def send(self, world: LedgerWorld, epoch: int, *change_ids: int) -> list[Reserved]:
        """Reserve and apply all of them, as a session does."""
        operations = self.reserve(world, epoch, *change_ids)
        before: Answered | None = None
        for operation in operations:
            world.ledger.advance(epoch, before, operation)
            before = applied(operation)
        world.ledger.advance(epoch, before, None)
        return operations

    def reject(self, world: LedgerWorld, epoch: int, change_id: int) -> None:
        """OldHost refuses it and uses its nonce up: a dead letter."""
        (operation,) = self.reserve(world, epoch, change_id)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)

    def halt_by(self, world: LedgerWorld, expected: int) -> int:
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, Evidence(expected)).halted is not None
        return taken.epoch
