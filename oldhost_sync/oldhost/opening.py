"""The one recovery path (design §7): crash, lost reply, timeout, ban, restart, deploy all come through here.

Take over the epoch → wait out a ban or the settle time (the writer does the waiting) → connect → ask the expected nonce
until two reads agree → compare with the ledger → a session, or a reason to wait or to halt. Asking at once after an
ambiguous end would be wrong: the operation may still sit in OldHost's buffer (trap 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oldhost_sync.oldhost.asking import ask
from oldhost_sync.oldhost.connection import Beat, Clock, HostConnection
from oldhost_sync.oldhost.errors import Fenced, HostError, InvariantViolated, LedgerHalted, LedgerUnavailable
from oldhost_sync.oldhost.ledger import Ledger, Reconciled, TakenOver
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.turn import Gate
from oldhost_sync.oldhost.wire import Ambiguous, Banned, Busy, ConnectionInUse, Expected
from oldhost_sync.policy.changes import ChangeRef, Fate

Connect = Callable[[], HostConnection]


@dataclass(frozen=True, slots=True)
class Opened:
    """A session, and what recovery settled. `bound`: to be sent first, in this order."""

    session: Session
    expected_nonce: int
    fates: list[Fate] = field(default_factory=list)
    bound: list[ChangeRef] = field(default_factory=list)
    more_bound: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Come back in `wait_ms`: "ban", "settle", "connection", "busy", "database" or "fenced"."""

    wait_ms: int
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing goes on until an operator decides; a sentence that says why."""

    message: str


@dataclass(frozen=True, slots=True)
class Opening:
    """All that opening a session needs; `owner` names who holds it."""

    ledger: Ledger
    connect: Connect
    owner: str
    gate: Gate
    clock: Clock
    limits: SessionLimits
    beat: Beat

    def open(self) -> Opened | Wait | Halt:
        """One pass through the recovery path; raises nothing that a ledger or a connection raises on purpose."""
        try:
            return self._open_or_halt()
        except Fenced as error:
            return self._come_back("fenced", str(error))
        except LedgerUnavailable as error:
            return self._come_back("database", str(error))
        except LedgerHalted as error:
            return Halt(str(error))

    def _open_or_halt(self) -> Opened | Wait | Halt:
        try:
            return self._open()
        except InvariantViolated as error:
            # Whoever's epoch it is: that the ledger contradicts itself is true in all of them.
            return self._violated(self.ledger.epoch(), error)

    def _open(self) -> Opened | Wait | Halt:
        over_at = self.clock() + self.limits.opening_seconds
        taken = self.ledger.take_over(self.owner)
        self.beat()
        if taken.halted is not None:
            return Halt(taken.halted)
        if taken.banned_ms > 0:
            return Wait(taken.banned_ms, "ban")
        if taken.settle_wait_ms > 0:
            return Wait(taken.settle_wait_ms, "settle", f"{len(taken.in_doubt)} in doubt")
        reached = self._reach(taken, over_at)
        if isinstance(reached, Wait):
            return reached
        connection, expected = reached
        kept = False
        try:
            outcome = self._compare(taken, connection, expected)
            kept = isinstance(outcome, Opened)
            return outcome
        finally:
            if not kept:
                connection.close()

    def _compare(self, taken: TakenOver, connection: HostConnection, expected: int) -> Opened | Halt:
        try:
            found = self._reconcile(taken, expected)
        except InvariantViolated as error:
            return self._violated(taken.epoch, error, expected)
        if found.halted is not None:
            return Halt(found.halted)
        session = Session(
            ledger=self.ledger,
            connection=connection,
            epoch=taken.epoch,
            next_nonce=expected,
            gate=self.gate,
            clock=self.clock,
            limits=self.limits,
        )
        return Opened(session, expected, found.fates, found.bound, found.more_bound)

    def _reconcile(self, taken: TakenOver, expected: int) -> Reconciled:
        if taken.next_nonce is None:
            self.ledger.adopt_first(taken.epoch, expected)
            return Reconciled()
        return self.ledger.reconcile(taken.epoch, expected)

    def _violated(self, epoch: int, error: InvariantViolated, expected: int | None = None) -> Halt:
        """Level L0: stop, and say so where operators look."""
        reason = f"invariant violated: {error}"
        self.ledger.halt(epoch, reason, expected)
        return Halt(reason)

    # ------------------------------------------------------------------------------------------- reaching OldHost

    def _reach(self, taken: TakenOver, over_at: float) -> tuple[HostConnection, int] | Wait:
        """A connection on which the expected nonce was read twice alike.

        Tries for a while: OldHost may only just be noticing that the last connection is gone. Until it did, a request
        that the network held back may have come in over it; so when something is in doubt and a try failed (here, or
        in an earlier opening), what may still be applied late is waited for with the new connection in hand.
        """
        prompt = self.limits.settle_seconds + self.limits.come_back_seconds
        failed_before = taken.doubt_age_ms > 1000 * prompt
        until = min(over_at, self.clock() + self.limits.connect_patience_seconds)
        while True:
            rest_seconds = self.limits.late_seconds if failed_before and taken.in_doubt else 0.0
            reached = self._try_to_reach(taken.epoch, over_at, rest_seconds=rest_seconds)
            failed_before = True
            if not isinstance(reached, Wait) or reached.reason not in {"connection", "busy"}:
                return reached
            if self.clock() + self.limits.connect_pause_seconds >= until:
                return reached
            self._rest(self.limits.connect_pause_seconds)

    def _try_to_reach(self, epoch: int, over_at: float, *, rest_seconds: float) -> tuple[HostConnection, int] | Wait:
        try:
            connection = self.connect()
        except HostError as error:
            return self._come_back("connection", str(error))
        kept = False
        try:
            read = self._ask_until_steady(connection, epoch, over_at)
            if rest_seconds and not isinstance(read, Wait):
                self._rest(rest_seconds)
                read = self._ask_until_steady(connection, epoch, over_at)
            if isinstance(read, Wait):
                return read
            kept = True
            return connection, read
        except HostError as error:
            return self._come_back("connection", str(error))
        finally:
            if not kept:
                connection.close()

    def _ask_until_steady(self, connection: HostConnection, epoch: int, over_at: float) -> int | Wait:
        before: int | None = None
        for _ in range(self.limits.expected_reads_max):
            if self.clock() >= over_at:
                break
            answer = ask(connection, self.limits, self.beat)
            match answer:
                case Expected(nonce):
                    if nonce == before:
                        return nonce
                    before = nonce
                case Banned(retry_after):
                    seconds = self.limits.ban_seconds if retry_after is None else retry_after
                    return Wait(self.ledger.ban(epoch, seconds), "ban")
                case Busy(retry_after):
                    self._rest(self.limits.busy_pause(retry_after))
                case ConnectionInUse():
                    return self._come_back("connection", "OldHost serves another connection")
                case Ambiguous(why):
                    return self._come_back("connection", why)
        return self._come_back("busy" if before is None else "settle", "the expected nonce did not hold still")

    def _come_back(self, reason: str, message: str) -> Wait:
        return Wait(round(self.limits.come_back_seconds * 1000), reason, message)

    def _rest(self, seconds: float) -> None:
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0:
            with self.gate:
                self.gate.wait(min(left, self.limits.look_up_seconds))
            self.beat()
