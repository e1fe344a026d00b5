"""What happened at OldHost: the events that the session reports to the machine.

They are the results of the activities that speak to OldHost. So they contain refs in wire format (`changes.py`), every
field has a default, and no field changes its name: a run's history and workers of another release contain them.
"""

# Annotations are values here, not text; see workflows/messages.py.
from dataclasses import dataclass, field
from typing import Any, Literal

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, WireRef, from_wire

# The `refusal` of a send that ended with a complete answer which the protocol does not have: no answer was lost.
ANSWERED = "unlisted"


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """OldHost agrees with the ledger. `fates`: of all that was in doubt, and of anything else that ended. `bound`: refs
    in nonce order, to be sent first; `bound_is_cut`: more are bound. `task_queue`: that of the session's worker.
    `apart`: [change id, tries] of those that OldHost refused without using their nonce; others get it (`apart.py`).
    """

    epoch: int = 0
    task_queue: str = ""
    expected_nonce: int = 0
    fates: list[ChangeResult] = field(default_factory=list)
    bound: list[WireRef] = field(default_factory=list)
    bound_is_cut: bool = False
    state: Literal["open"] = "open"
    apart: list[list[int]] = field(default_factory=list)

    def bound_refs(self) -> list[ChangeRef]:
        """Raises ValueError if one of them is not a valid ref."""
        return [from_wire(ref) for ref in self.bound]


@dataclass(frozen=True, slots=True)
class OpeningPostponed:
    """No session yet: try again in `wait_ms`. `reason`:

    "ban" · "settle" (an operation is in doubt) · "connection" (none, or it was lost) · "in-use" (OldHost serves another
    one) · "silent" (no answer within the request timeout) · "credentials" (they are refused) · "tls"
    (OldHost's certificate is not trusted, or it speaks no TLS) · "refused" (every request
    is) · "busy" · "unsteady" (the expected nonce changes from one reading to the next) · "unreadable" (the answers do
    not follow the protocol) · "keep-alive" (OldHost closes the connection after each answer) · "database" · "fenced" ·
    "leaving" (the worker stops) · "pause" (by an operator, and the writer does not know) · "mapping" (the worker lacks
    its code).
    """

    wait_ms: int = 0
    reason: str = ""
    message: str = ""
    state: Literal["wait"] = "wait"


# Reasons of an OpeningPostponed after which OldHost is asked less and less often.
REFUSALS = frozenset({"credentials", "refused", "tls", "unreadable"})


@dataclass(frozen=True, slots=True)
class OpeningHalted:
    """Nothing is sent until an operator decides; `message` is a sentence that says why."""

    message: str = ""
    state: Literal["halt"] = "halt"


@dataclass(frozen=True, slots=True)
class OpeningFailed:
    """The activity itself failed, because of its worker or the database. `why`: in words, as far as it is known."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class SendEnded:
    """A send reported its end: one fate per change id (WAITING: not sent; BOUND: in doubt; HELD: behind a dead letter),
    and the state of the session after it.

    `service_ms`: mean time OldHost took per operation on the wire; `pace_ms`: mean time from one operation to the next,
    with what the database added. `banned_ms`: > 0 when OldHost answered with a ban,
    which lasts that long from now. `refusal`: the kind of answer that ended the session ("banned", "ambiguous", …), if
    one did. `halted`: why the ledger was halted, if it was; `never_taken`: the change whose first send OldHost called a
    replay. `older`: refs of outstanding changes that must be sent before those refused here, oldest first; `held`:
    entities with dead letters as [entity_type, entity_id, [change ids]]. `apart`: [change id, tries, milliseconds] of
    those that still wait so long, since OldHost refused them or their entity.
    """

    fates: list[ChangeResult] = field(default_factory=list)
    session_open: bool = True
    service_ms: float = 0.0
    banned_ms: int = 0
    reason: str = ""
    halted: str = ""
    never_taken: int | None = None
    older: list[WireRef] = field(default_factory=list)
    held: list[list[Any]] = field(default_factory=list)
    refusal: str = ""
    pace_ms: float = 0.0
    apart: list[list[int]] = field(default_factory=list)

    def older_refs(self) -> list[ChangeRef]:
        """Raises ValueError if one of them is not a valid ref."""
        return [from_wire(ref) for ref in self.older]

    def dead_letters(self) -> list[tuple[EntityKey, list[int]]]:
        return [(EntityKey(entity_type, entity_id), dead) for entity_type, entity_id, dead in self.held]


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A send ended without a report: its changes are in doubt, unless it `never_started`. `silent`: its worker sent no
    heartbeat in time.
    """

    never_started: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """OldHost's expected nonce, 0 if it could not be asked; `session_open` False if it differs from the ledger's."""

    session_open: bool = True
    expected_nonce: int = 0
    reason: str = ""


OpeningResult = SessionOpened | OpeningPostponed | OpeningHalted
