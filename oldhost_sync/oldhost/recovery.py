"""The one recovery path, for every cause: crash, lost reply, timeout, ban, restart, deploy.

Take over the epoch → wait for the end of a ban or of the settle time (the writer waits) → connect → ask what the host
can tell (`drivers/ambiguity.py`), for the expected nonce until two reads agree → compare with the ledger → a session,
or a reason to wait or to halt. Right after an ambiguous end only "it was applied" can be trusted: otherwise the
operation may still be in OldHost's buffer (trap 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.drivers.capabilities import Resets
from oldhost_sync.drivers.events import OutOfRange
from oldhost_sync.oldhost.connection import HostConnection
from oldhost_sync.oldhost.errors import Fenced, InvariantViolated, LedgerHalted, LedgerUnavailable
from oldhost_sync.oldhost.inquiry import Inquiry, LastReading, Reached
from oldhost_sync.oldhost.ledger import NEVER_ASKED, Count, Evidence, Reconciled, TakenOver
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.shared_connection import ExchangeListener
from oldhost_sync.policy.changes import to_wire
from oldhost_sync.policy.machine.events import REFUSALS, OpeningHalted, OpeningPostponed, SessionOpened

# What a look that comes early must not hide behind the settle time.
_REFUSED = REFUSALS | {"ban"}
NO_FIRST_NUMBER = (
    "nobody can say with which number OldHost begins: it can't be asked, and its greeting does not tell. "
    "Look there, then say so: `resolve adopt --expected N`."
)
# More operations are bound than the ledger listed: this session gives nothing back.
ALL_BOUND = 2**63


@dataclass(frozen=True, slots=True)
class Opened:
    """A session, and what recovery found before it began."""

    session: Session
    event: SessionOpened


Ended = Opened | OpeningPostponed | OpeningHalted


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """OldHost and the ledger contradict each other, by one reading so far."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(Inquiry):
    """Everything needed to open a session; `owner` names the process that opens it.

    `newest`: id and acceptance time of the newest change that the writer has, if any.
    """

    owner: str
    newest: tuple[int, ...] = ()
    listener: ExchangeListener | None = None

    def open(self) -> Ended:
        """One pass through the recovery path; raises no LedgerError and no HostError."""
        try:
            return self._open_or_halt()
        except Fenced as error:
            return self._come_back("fenced", str(error))
        except LedgerUnavailable as error:
            return self._come_back("database", str(error))
        except LedgerHalted as error:
            return OpeningHalted(str(error))

    def count(self) -> Count:
        """What OldHost expects now, for an operator's decision; does not take over the epoch."""
        if not self._plan.has_count or self.capabilities.resets is not Resets.NEVER:
            return NEVER_ASKED  # after a new beginning its count says nothing about what was sent before
        try:
            nothing = TakenOver(self.ledger.epoch(), next_nonce=None, last_applied_nonce=None, **self._position())
            reached = self._reach(nothing, self.clock() + self.limits.count_seconds)
        except LedgerUnavailable as error:
            return Count(None, str(error))
        if isinstance(reached, OpeningPostponed):
            banned = f"it bans us for {reached.wait_ms // 1000} s more"
            return Count(None, banned if reached.reason == "ban" else reached.message)
        connection, said = reached
        connection.close()
        return Count(None, f"it says {said.said}") if isinstance(said, OutOfRange) else Count(said.expected)

    def _open_or_halt(self) -> Ended:
        try:
            return self._open()
        except InvariantViolated as error:
            # Whichever epoch is current: a ledger that contradicts itself does so in every epoch.
            return self._violated(self.ledger.epoch(), error)

    def _open(self) -> Ended:
        over_at = self.clock() + self.limits.opening_seconds
        taken = self.ledger.take_over(self.owner)
        self.first_contact.opening(taken.epoch)
        self.heartbeat()
        why = taken.halted or self._loss(taken)
        if why:
            return self._halted(taken, why, over_at)
        if taken.banned_ms > 0 and not self.limits.asks_again(taken.ban_told_ms_ago):
            return OpeningPostponed(taken.banned_ms, "ban")
        if taken.settle_wait_ms > 0 and (early := self._look_early(taken, over_at)) is not None:
            return early
        outcome = self._look(taken, over_at, final=not self._plan.asks)
        if not isinstance(outcome, _Mismatch):
            return outcome
        # One reading may be wrong (a stale replica behind the address, a proxy): halting needs a second, later one.
        self._rest(self.limits.second_look_seconds)
        again = self._look(taken, self.clock() + self.limits.second_look_seconds_max, final=True)
        return OpeningHalted(again.why) if isinstance(again, _Mismatch) else again

    def _look_early(self, taken: TakenOver, over_at: float) -> Ended | None:
        """Some operation may be applied late. But an expected nonce beyond all those that may have been written proves
        that theirs are used: only "not used yet" has to wait for the settle time. So ask at once, then repeatedly. The
        end of that time is waited for here, if it is near (None: it has come); else the writer waits.
        """
        until = self.clock() + taken.settle_wait_ms / 1000
        again = () if self.pace.is_operation_refused else self.limits.early_look_pauses
        tells = taken.newest_written is not None and self._plan.asks
        also, pauses = "", (0.0, *again) if tells else ()
        for pause in pauses:
            if self.clock() + pause >= until:
                break
            self._rest(pause)
            early = self._look_once(taken, min(over_at, until))
            if isinstance(early, OpeningPostponed) and early.reason not in _REFUSED:
                also = f"; {early.message}"
            elif early is not None:
                return early
        left = until - self.clock()
        if pauses and left <= pauses[-1]:
            self._rest(left)
            return None
        return OpeningPostponed(max(round(left * 1000), 1), "settle", f"{len(taken.in_doubt)} in doubt{also}")

    def _look_once(self, taken: TakenOver, until: float) -> Ended | None:
        """None: OldHost does not say (yet) that everything that may have been written has used its nonce."""
        reached = self._try_to_reach(taken, until, LastReading())
        if isinstance(reached, OpeningPostponed):
            return reached
        connection, said = reached
        if isinstance(said, OutOfRange) or not self._is_certain(taken, said):
            if isinstance(said, Evidence):
                self.reply_timeout.found_unfinished(self.clock())
            connection.close()
            return None
        early = self._outcome(taken, reached, final=False)
        return None if isinstance(early, _Mismatch) else early

    def _loss(self, taken: TakenOver) -> str:
        """Why the ledger was halted, if the database has lost the newest change that the writer has; else empty."""
        try:
            if self.newest:
                self.ledger.check_known(taken.epoch, *self.newest)
        except LedgerHalted as error:
            return str(error)
        return ""

    def _halted(self, taken: TakenOver, why: str, over_at: float) -> OpeningHalted:
        """Add to a halt what OldHost expects, since `resolve` needs it. It is asked once, if that is possible now: a
        database that lost commits usually has a wrong count, too, and would halt twice.
        """
        cannot_be_asked = taken.banned_ms > 0 or not self._plan.has_count
        if taken.halt_knows_expected or cannot_be_asked or taken.next_nonce is None:
            return OpeningHalted(why)
        self._rest(taken.settle_wait_ms / 1000)
        reached = self._reach(taken, min(over_at, self.clock() + self.limits.request_timeout_seconds))
        if isinstance(reached, OpeningPostponed):
            return OpeningHalted(why)
        connection, said = reached
        connection.close()
        if isinstance(said, OutOfRange) or said.expected is None:
            return OpeningHalted(why)
        return OpeningHalted(self.ledger.complete_halt(taken.epoch, said.expected))

    def _look(self, taken: TakenOver, over_at: float, *, final: bool) -> Ended | _Mismatch:
        """Connect, ask, compare. `final`: a mismatch halts the ledger."""
        reached = self._reach(taken, over_at)
        return reached if isinstance(reached, OpeningPostponed) else self._outcome(taken, reached, final=final)

    def _outcome(self, taken: TakenOver, reached: Reached, *, final: bool) -> Ended | _Mismatch:
        connection, said = reached
        kept = False
        try:
            outcome = self._compare(taken, connection, said, final=final)
            kept = isinstance(outcome, Opened)
            return outcome
        finally:
            if not kept:
                connection.close()

    def _compare(
        self, taken: TakenOver, connection: HostConnection, said: Evidence | OutOfRange, *, final: bool
    ) -> Ended | _Mismatch:
        if isinstance(said, OutOfRange):
            return self._out_of_range(taken, said, final=final)
        expected = said.expected
        if expected is not None and (stale := self.first_contact.staler_than_told(expected, self.clock())):
            return self._come_back("unsteady", stale)
        try:
            found = self._reconcile(taken, said, final=final)
        except InvariantViolated as error:
            return self._violated(taken.epoch, error, expected)
        if found.stale is not None:
            return self._come_back("unsteady", found.stale)
        if found.mismatch is not None:
            return _Mismatch(found.mismatch)
        if found.halted is not None:
            return OpeningHalted(found.halted)
        session = Session(
            ledger=self.ledger,
            connection=connection,
            epoch=taken.epoch,
            next_nonce=found.expected,
            bound_through=ALL_BOUND if found.bound_is_cut else found.expected + len(found.bound) - 1,
            condition=self.condition,
            clock=self.clock,
            limits=self.limits,
            reply_timeout=self.reply_timeout,
            first_contact=self.first_contact,
            pace=self.pace,
            questions=self._questions(found.base),
            listener=self.listener,
        )
        bound = [to_wire(ref) for ref in found.bound]
        event = SessionOpened(
            taken.epoch, "", found.expected, found.fates, bound, found.bound_is_cut, apart=found.apart
        )
        return Opened(session, event)

    def _reconcile(self, taken: TakenOver, evidence: Evidence, *, final: bool) -> Reconciled:
        if taken.next_nonce is not None:
            return self.ledger.reconcile(taken.epoch, evidence, final=final)
        if evidence.expected is None:
            self.ledger.halt(taken.epoch, NO_FIRST_NUMBER)
            return Reconciled(halted=NO_FIRST_NUMBER)
        self.ledger.adopt_first(taken.epoch, evidence.expected, evidence.incarnation)
        return Reconciled(evidence.expected)

    def _out_of_range(self, taken: TakenOver, reading: OutOfRange, *, final: bool) -> OpeningHalted | _Mismatch:
        why = (
            f"OldHost expects nonce {reading.said}, which is out of range: its counter overflowed, or "
            "a proxy answers in its place. Correct that, then `resolve`."
        )
        if final:
            self.ledger.halt(taken.epoch, why)
            return OpeningHalted(why)
        return _Mismatch(why)

    def _violated(self, epoch: int, error: InvariantViolated, expected: int | None = None) -> OpeningHalted:
        """Halt, and record the reason for operators."""
        reason = f"invariant violated: {error}"
        self.ledger.halt(epoch, reason, expected)
        return OpeningHalted(reason)
