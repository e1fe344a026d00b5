"""The interface between a session, which decides what may be sent, and the nonce ledger, which stores it.

Two implementations pass the same conformance suite: MariaDB's (`oldhost_sync.store.ledger.maria_ledger`) and the
simulation's in memory. Every call is one transaction. Every call that changes anything compares the epoch under the
ledger's row lock and raises :class:`~oldhost_sync.oldhost.errors.Fenced` if it is stale: that is the fence (trap 2).

A nonce's row: RESERVED → SENT → APPLIED or FAILED. RESERVED means that no byte was ever written: the next takeover
releases it. A SENT operation is bound to its nonce and its exact body until its result is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oldhost_sync.drivers.ambiguity import Resends
from oldhost_sync.drivers.events import Applied, Malformed, OutcomeTold, Rejected, Said, ToldFate
from oldhost_sync.drivers.mapping import Encoded
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, PriorityClass

# How many bound operations a new session gets at once; there are more only after an operator's `resolve resend`.
BOUND_MAX = 100

# The answers that end an operation: they decide the result of its row and the fate of its change.
Definite = Applied | Rejected | Malformed


@dataclass(frozen=True, slots=True)
class Reserved:
    """An operation that holds a nonce. `sends`: how often it may have reached OldHost before now. `mapping`: what made
    its body; `state_hash`: of the state that OldHost has after it, empty: unknown.
    """

    nonce: int
    change_id: int
    idempotency_key: str
    body: bytes
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: PriorityClass
    sends: int = 0
    mapping: str = ""
    state_hash: bytes = b""

    @staticmethod
    def of(change: Any, encoded: Encoded, *, nonce: int, sends: int) -> Reserved:
        """`change`: any object with a change's columns, such as a database row."""
        return Reserved(
            nonce=nonce,
            change_id=change.change_id,
            idempotency_key=change.idempotency_key,
            body=encoded.body,
            entity_type=change.entity_type,
            entity_id=change.entity_id,
            event_type=change.event_type,
            priority_class=PriorityClass(change.priority_class),
            sends=sends,
            mapping=encoded.mapping,
            state_hash=encoded.state_hash,
        )


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A SENT row found at a takeover. `sends`: how often it may have reached OldHost; 0 when it certainly never did.
    `tried_before`: its change, whose `key` it has, may have reached OldHost under another nonce, too.
    """

    nonce: int
    change_id: int
    sends: int
    key: str = ""
    tried_before: bool = False


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a takeover found. `next_nonce` None: OldHost was never asked. Waits in milliseconds from now.

    `settle_wait_ms`: for the newest row that may have been written. A row that was marked and uncounted before a byte
    was written, or that OldHost refused, can't be applied late and needs no wait.
    `ban_told_ms_ago`: when OldHost last said how long the ban lasts; negative: the clock was set back since.
    `halted`: why nothing may be sent; None while an operator's `resolve` waits for the comparison that follows.
    `incarnation`: the host's, when the last session began; `base`: see `Numbering`. `last_known`: the next nonce, where
    it is used only to read what the host says.
    """

    epoch: int
    next_nonce: int | None
    last_applied_nonce: int | None
    in_doubt: list[InDoubt] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    banned_ms: int = 0
    ban_told_ms_ago: int = 0
    settle_wait_ms: int = 0
    halted: str | None = None
    halt_knows_expected: bool = False
    incarnation: str = ""
    base: int = 0
    last_known: int | None = None

    @property
    def near(self) -> int | None:
        """The nonce that the host should want next, or one near it; None: it never told one."""
        return self.last_known if self.next_nonce is None else self.next_nonce

    @property
    def written(self) -> list[InDoubt]:
        """Those that may have reached the host."""
        return [row for row in self.in_doubt if row.sends]

    @property
    def may_be_late(self) -> bool:
        """Whether an operation of ours may still be applied."""
        return bool(self.written)

    @property
    def newest_written(self) -> int | None:
        """The last nonce that may have been on the wire; None if there is none, or if there may be more than listed."""
        written = self.written
        return written[-1].nonce if written and len(self.in_doubt) < BOUND_MAX else None

    @property
    def final_nonces(self) -> list[int]:
        """What OldHost expects once none of our operations is still to be applied, if we are the only writer."""
        if self.next_nonce is None or self.last_applied_nonce is None:
            return []
        if not self.may_be_late:
            return [self.last_applied_nonce + 1]
        return [] if self.newest_written is None else [self.newest_written + 1]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a host says of the operations in doubt, as a session begins, as far as its kind can be asked (`ambiguity`).

    `expected`: the nonce that it wants next; None: it has not told. Those before it were used, and applied if
    `proves_applied`. `outcomes`: by nonce, what it says of operations that it was asked about. `resends`: what may be
    sent again while nothing is known of it, and `resent_types` by type; `unknown`: why nothing is, for an operator.
    `incarnation`: of the host now. `begins_with`: the number with which it has begun anew, None: it has not.
    """

    expected: int | None = None
    proves_applied: bool = False
    outcomes: Mapping[int, OutcomeTold] = field(default_factory=dict)
    resends: Resends = Resends.NEVER
    resent_types: frozenset[str] = frozenset()
    unknown: str = "OldHost can't be asked about it"
    incarnation: str = ""
    begins_with: int | None = None

    def told(self, nonce: int) -> OutcomeTold | None:
        """What became of an operation whose nonce is used, if the host says so."""
        outcome = self.outcomes.get(nonce)
        if outcome is not None and outcome.fate in {ToldFate.APPLIED, ToldFate.REJECTED}:
            return outcome
        is_applied = self.proves_applied and self.expected is not None and nonce < self.expected
        return OutcomeTold(ToldFate.APPLIED, nonce) if is_applied else None

    def proves_free(self, nonce: int) -> bool:
        """Whether the host has not taken an operation from this nonce on; it may still arrive late."""
        if self.expected is not None:
            return nonce >= self.expected
        return any(nonce >= one for one, told in self.outcomes.items() if told.fate is ToldFate.NOT_TAKEN)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The ledger compared with what the host says. `halted`: they contradict each other, or nobody can say whether an
    operation was taken; an operator decides. `expected`: the nonce at which the session begins. `base`: see
    `Numbering`.

    `mismatch`: the same, from a comparison that must not halt; nothing was changed. `stale`: OldHost has said a moment
    ago that it used a nonce, which this count denies: an older answer (a cache, a replica); nothing was changed.
    `apart`: [change id, tries] of those that gave up their nonces, since OldHost refused them without using these.
    """

    expected: int = 0
    base: int = 0
    fates: list[ChangeResult] = field(default_factory=list)
    bound: list[ChangeRef] = field(default_factory=list)
    bound_is_cut: bool = False
    halted: str | None = None
    mismatch: str | None = None
    stale: str | None = None
    apart: list[list[int]] = field(default_factory=list)


class Reservation(list["Reserved | ChangeResult"]):
    """One entry per change id, in order: a nonce with its exact body, or a fate.

    A fate without an outcome: WAITING, because some of `older` go first, or because it is in `apart` (change id, tries,
    milliseconds that it still waits); or HELD, behind the dead letters in `held`.
    """

    def __init__(self, entries: Iterable[Reserved | ChangeResult] = ()) -> None:
        super().__init__(entries)
        self.older: list[ChangeRef] = []
        self.apart: list[list[int]] = []
        self.held: list[tuple[EntityKey, list[int]]] = []


@dataclass(frozen=True, slots=True)
class Answered:
    """An operation and its definite answer, which arrived so long ago."""

    operation: Reserved
    answer: Definite
    ago_us: int = 0


def consumed(answer: Definite) -> bool:
    """Whether the operation's nonce is used up."""
    return isinstance(answer, Applied) or (isinstance(answer, Rejected) and answer.consumed)


@dataclass(frozen=True, slots=True)
class Count:
    """What OldHost expects, which an operator's decision about a halt is based on. None: it could not be asked; `why`
    has the reason. `never`: it is of a kind that can't be asked; then the operator's word counts.
    """

    nonce: int | None
    why: str = ""
    never: bool = False


NOT_ASKED = Count(None, "this process can't ask it")
NEVER_ASKED = Count(None, "it can't be asked", never=True)


class Ledger(Protocol):
    """The ledger of one host."""

    def take_over(self, owner: str) -> TakenOver:
        """Begin a new epoch; sessions of older ones can't reserve, mark or record any more. Releases RESERVED rows."""

    def adopt_first(self, epoch: int, expected: int, incarnation: str = "") -> None:
        """At the very first contact: start counting at what OldHost expects. `incarnation`: the host's."""

    def reconcile(self, epoch: int, evidence: Evidence, *, final: bool = True) -> Reconciled:
        """Compare with what the host says: in-doubt rows that it has taken end, the others stay bound, or halt. A used
        nonce whose answer was lost, and of which the host says no more: APPLIED, unproven. One with a kept answer
        (`note_answer`): never APPLIED (I14).

        First, an operator's decision that waits for this count is carried out, if it is the count that they were shown.

        `final` False: a mismatch changes nothing, since one reading may be wrong.
        """

    def reserve(
        self, epoch: int, change_ids: Sequence[int], accepted_at_ms: Mapping[int, int] | None = None
    ) -> Reservation:
        """Bind nonces to those changes that may be sent now; a change overtakes no older one of its entity.

        `accepted_at_ms`: when each was accepted, as far as the writer knows. If a change is missing, or its id now
        belongs to another one, the database has lost it (a failover to a replica without it): halts, LedgerHalted.
        """

    def check_known(self, epoch: int, change_id: int, accepted_at_ms: int) -> None:
        """Halt, LedgerHalted, if this change is not in the database (any more): it has lost the newest ones."""

    def advance(
        self, epoch: int, answered: Answered | None, sent: Reserved | None, *, again: bool = False
    ) -> ChangeResult | None:
        """Record an answer and mark the next operation SENT, together; returns the fate of the answered change.

        `again`: OldHost has certainly not taken the previous send (busy, or never written), so it does not count.
        """

    def release_nonces(self, epoch: int, answered: Answered | None, beyond: int) -> ChangeResult | None:
        """Record an answer, as `advance` does, and release every nonce beyond `beyond`: their changes wait again.

        Raises InvariantViolated if a byte of one of them may have been written.
        """

    def uncount_send(self, epoch: int, marked: Reserved, said: Said | None = None) -> None:
        """`marked` was marked SENT by this epoch and OldHost has certainly not taken it: that does not count as a send.
        `said`: the answer that refused it; None: not one byte was written.

        Idempotent.
        """

    def note_answer(self, epoch: int, sent: Reserved, said: Said) -> None:
        """Keep an unlisted answer to this epoch's send: if the nonce was used, it decides what that means (I14)."""

    def ban(
        self,
        epoch: int,
        seconds: float,
        *,
        refused: Reserved | None = None,
        said: Said | None = None,
        halt: str | None = None,
        expected: int | None = None,
    ) -> int:
        """OldHost bans us: nothing is sent until it ends. Returns the milliseconds left, margin included. `said`: its
        answer to `refused`.

        `refused`: the operation that got this answer and was certainly not applied by this send (together with `halt`:
        unless a proxy delivered it twice; an operator decides which).
        `halt`: also halt, for this reason; `expected`: what OldHost expected then.
        """

    def halt(self, epoch: int, reason: str, expected: int | None = None) -> None:
        """Stop the host until an operator decides."""

    def complete_halt(self, epoch: int, expected: int) -> str:
        """Add what OldHost expects to a halt that lacks it, if that contradicts the ledger.

        Otherwise `resolve` would have no count to use, and the next comparison would halt again. Returns the reason.
        """

    def fates(self, change_ids: Sequence[int]) -> list[ChangeResult]:
        """What is recorded for each: an outcome, BOUND (it has a nonce that may have been used) or WAITING."""

    def epoch(self) -> int:
        """The current epoch."""

    def position(self) -> tuple[int, int | None]:
        """The base of the host's numbers, and the next nonce, None: it was never asked."""
