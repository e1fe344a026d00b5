"""What a session asks of the nonce ledger: the seam between "what may be sent" and "how it is remembered".

Two implementations keep the same conformance suite: MariaDB's (`oldhost_sync.store.ledger.maria_ledger`) and the
simulation's in memory. Every call is one transaction. Every call that changes anything compares the epoch under the
ledger row's lock and raises :class:`~oldhost_sync.oldhost.errors.Fenced` when it is not ours: that is the fence (trap
2).

A nonce's row: RESERVED → SENT → APPLIED or FAILED. RESERVED means that no byte was ever written: the next takeover
releases it. SENT is bound to its nonce and its exact body until it is known what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oldhost_sync.oldhost.wire import Applied, Malformed, Rejected
from oldhost_sync.policy.changes import ChangeRef, EntityKey, Fate, PriorityClass

# How many bound operations a new session is told of at once; more only after an operator's `resolve resend`.
BOUND_MAX = 100

# The answers that end an operation: its row and its change get their fate by them.
Definite = Applied | Rejected | Malformed


@dataclass(frozen=True, slots=True)
class Reserved:
    """An operation that holds a nonce. `sends`: how often it may have reached OldHost before now."""

    nonce: int
    change_id: int
    idempotency_key: str
    body: bytes
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    sends: int = 0

    @staticmethod
    def of(change: Any, *, nonce: int, body: bytes, sends: int) -> Reserved:
        """`change`: whatever has a change's columns, as a row of the database has."""
        return Reserved(
            nonce=nonce,
            change_id=change.change_id,
            idempotency_key=change.idempotency_key,
            body=body,
            entity_type=change.entity_type,
            entity_id=change.entity_id,
            event_type=change.event_type,
            priority_class=PriorityClass(change.priority_class),
            sends=sends,
        )


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A SENT row found at a takeover. `sends`: how often it may have reached OldHost; 0 when it certainly never did."""

    nonce: int
    change_id: int
    sends: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a takeover found. `next_nonce` None: OldHost was never asked. Waits in milliseconds from now.

    `settle_wait_ms`: by the youngest row that may have been written. One that was marked and taken
    back before a byte of it left, or that OldHost refused, can't be applied late: nobody waits for it.
    `halted`: nothing may go on; None while an operator's `resolve` waits for the comparison that follows.
    """

    epoch: int
    next_nonce: int | None
    last_applied_nonce: int | None
    in_doubt: list[InDoubt] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    banned_ms: int = 0
    settle_wait_ms: int = 0
    halted: str | None = None
    halt_knows_expected: bool = False

    @property
    def may_be_late(self) -> bool:
        """Something of ours may still be applied."""
        return any(row.sends for row in self.in_doubt)

    @property
    def newest_written(self) -> int | None:
        """The last nonce that may have been on the wire; None where there is none, or too many to know."""
        written = [row.nonce for row in self.in_doubt if row.sends]
        return written[-1] if written and len(self.in_doubt) < BOUND_MAX else None

    @property
    def final_nonces(self) -> list[int]:
        """What OldHost expects when no apply of ours is to come, if nobody but us writes to it."""
        if self.next_nonce is None or self.last_applied_nonce is None:
            return []
        if not self.may_be_late:
            return [self.last_applied_nonce + 1]
        return [] if self.newest_written is None else [self.newest_written + 1]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The ledger compared with OldHost. `halted`: they can't both be right; an operator decides.

    `mismatch`: the same, found by a comparison that was not to halt; nothing was changed.
    """

    fates: list[Fate] = field(default_factory=list)
    bound: list[ChangeRef] = field(default_factory=list)
    more_bound: bool = False
    halted: str | None = None
    mismatch: str | None = None


class Reservation(list["Reserved | Fate"]):
    """One entry per change id, in order: a nonce with its exact body, or a fate.

    A fate without an outcome: WAITING, as some of `older` go first; or HELD, behind the dead letters in `held`.
    """

    def __init__(self, entries: Iterable[Reserved | Fate] = ()) -> None:
        super().__init__(entries)
        self.older: list[ChangeRef] = []
        self.held: list[tuple[EntityKey, list[int]]] = []


@dataclass(frozen=True, slots=True)
class Answered:
    """An operation and the definite answer it got."""

    operation: Reserved
    answer: Definite


def consumed(answer: Definite) -> bool:
    """Whether the operation's nonce is used up."""
    return isinstance(answer, Applied) or (isinstance(answer, Rejected) and answer.consumed)


class Ledger(Protocol):
    """The ledger of one host."""

    def take_over(self, owner: str) -> TakenOver:
        """Begin a new epoch; nobody of an older one can reserve, mark or record from now on. Releases RESERVED rows."""

    def adopt_first(self, epoch: int, expected: int) -> None:
        """The very first contact: number from what OldHost expects."""

    def reconcile(self, epoch: int, expected: int, *, final: bool = True) -> Reconciled:
        """Compare with OldHost's expected nonce: in-doubt rows below it are APPLIED, the others stay bound, or halt.

        Before that an operator's decision that waited for this count is carried out, if it is the one he was shown.

        `final` False: a mismatch changes nothing, since one reading may be false.
        """

    def reserve(
        self, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int] | None = None
    ) -> Reservation:
        """Bind nonces to those of these changes that may go now; a change overtakes no older one of its entity.

        `accepted_at_ms`: when each was accepted, as far as the writer knows. A change that is gone, or is another one
        than then, was lost by the database (a fail-over to a replica that lacked it): that halts, LedgerHalted.
        """

    def check_known(self, epoch: int, change_id: int, accepted_at_ms: int) -> None:
        """Halts, LedgerHalted, when the database does not have this change (any more): it has lost the last ones."""

    def advance(
        self, epoch: int, answered: Answered | None, sent: Reserved | None, *, again: bool = False
    ) -> Fate | None:
        """Record an answer and mark the next operation SENT, together; gives the fate of what was answered.

        `again`: OldHost has certainly not taken the send before this one (busy, or never written): it does not count.
        """

    def give_back(self, epoch: int, answered: Answered | None, beyond: int) -> Fate | None:
        """Record an answer, as `advance` does, and release every nonce beyond `beyond`: their changes wait again.

        Not one byte of them was ever written; that one may have been is an InvariantViolated.
        """

    def take_back(self, epoch: int, marked: Reserved) -> None:
        """`marked` was marked SENT by this epoch and OldHost has certainly not taken it: that does not count as a send.

        To say so twice is to say so once.
        """

    def ban(
        self,
        epoch: int,
        seconds: float,
        *,
        refused: Reserved | None = None,
        halt: str | None = None,
        expected: int | None = None,
    ) -> int:
        """OldHost bans us: nobody sends until then. Gives the milliseconds left, margin included.

        `refused`: the operation that got this answer and was certainly not applied by this send (together with `halt`:
        unless something on the way delivered it twice; an operator says which).
        `halt`: halt as well, for this reason; `expected`: what OldHost expected then.
        """

    def halt(self, epoch: int, reason: str, expected: int | None = None) -> None:
        """Stop the host until an operator decides."""

    def complete_halt(self, epoch: int, expected: int) -> str:
        """A halt that says nothing of OldHost's count gets what it expects, where that contradicts the ledger.

        Without it a `resolve` has no count to follow, and the next comparison would halt again. Gives the reason.
        """

    def fates(self, change_ids: Sequence[int]) -> list[Fate]:
        """What is recorded of each: an outcome, BOUND (it holds a nonce that may have been used) or WAITING."""

    def epoch(self) -> int:
        """The epoch that may act now."""
