"""The one recovery path, for every cause: crash, lost reply, timeout, ban, restart, deploy.

Take over the epoch → wait for the end of a ban or of the settle time (the writer waits) → connect → ask what the host
can tell (`drivers/ambiguity.py`), for the expected nonce until two reads agree → compare with the ledger → a session,
or a reason to wait or to halt. Right after an ambiguous end only "it was applied" can be trusted: otherwise the
operation may still be in OldHost's buffer (trap 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from oldhost_sync.drivers.ambiguity import RecoveryPlan, Resends, plan
from oldhost_sync.drivers.capabilities import OLDHOST, AskedOutcomes, Capabilities, Resets
from oldhost_sync.drivers.events import (
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    NoService,
    OutcomeTold,
    OutOfRange,
    Ready,
    ToldFate,
)
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import (
    CertificateRefused,
    Fenced,
    HostError,
    InvariantViolated,
    LedgerHalted,
    LedgerUnavailable,
    NoAccess,
    Silent,
    Unreadable,
)
from oldhost_sync.oldhost.expected_nonce import FirstContact, Questions
from oldhost_sync.oldhost.ledger import NEVER_ASKED, Count, Evidence, InDoubt, Ledger, Reconciled, TakenOver
from oldhost_sync.oldhost.numbers import Numbering
from oldhost_sync.oldhost.refusals import ConnectionPace, why_hung_up
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.oldhost.shared_connection import Condition, ExchangeListener
from oldhost_sync.policy.changes import to_wire
from oldhost_sync.policy.machine.events import REFUSALS, OpeningHalted, OpeningPostponed, SessionOpened

Connect = Callable[[], HostConnection]

# Causes that may be gone in a moment: retried during the opening, before the writer is told to come back.
_TRIED_AGAIN = frozenset({"connection", "in-use", "silent", "busy"})
# What a look that comes early must not hide behind the settle time.
_REFUSED = REFUSALS | {"ban"}
NO_FIRST_NUMBER = (
    "nobody can say with which number OldHost begins: it can't be asked, and its greeting does not tell. "
    "Look there, then say so: `resolve adopt --expected N`."
)
# More operations are bound than the ledger listed: this session gives nothing back.
ALL_BOUND = 2**63

Reading = Expected | OutOfRange
# A connection, and what OldHost says over it.
Reached = tuple[HostConnection, Evidence | OutOfRange]


@dataclass(slots=True)
class _LastReading:
    """OldHost's last reading, over any connection of one look; the next reading has to be the same."""

    value: Reading | None = None


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


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything needed to open a session; `owner` names the process that opens it.

    `newest`: id and acceptance time of the newest change that the writer has, if any. `capabilities`: what its driver
    declares; `resent_types`: LWW event types whose operations may be sent twice. `reply_timeout`: what is known of how
    long this host's answers take.
    """

    ledger: Ledger
    connect: Connect
    owner: str
    condition: Condition
    clock: Clock
    limits: SessionLimits
    heartbeat: Heartbeat
    newest: tuple[int, ...] = ()
    capabilities: Capabilities = OLDHOST
    resent_types: frozenset[str] = frozenset()
    reply_timeout: ReplyTimeout = field(default_factory=ReplyTimeout)
    first_contact: FirstContact = field(default_factory=FirstContact)
    pace: ConnectionPace = field(default_factory=ConnectionPace)
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

    @property
    def _plan(self) -> RecoveryPlan:
        return plan(self.capabilities)

    def _questions(self, base: int) -> Questions:
        numbering = Numbering.of(self.capabilities, base)
        return Questions(self.capabilities, self.limits, self.clock, self.reply_timeout, numbering)

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
        reached = self._try_to_reach(taken, until, _LastReading())
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

    # ------------------------------------------------------------------------------------------- reaching OldHost

    def _reach(self, taken: TakenOver, over_at: float) -> Reached | OpeningPostponed:
        """A connection, and the expected nonce from two equal readings.

        If OldHost closes a connection after two answers, the second reading is made over the next one, which can then
        answer once. Retries for a while: until OldHost notices that the last connection is gone, a delayed request may
        arrive over it; so wait for whatever may still be applied late.
        """
        until = min(over_at, self.clock() + self.limits.reconnect_seconds_max)
        last = _LastReading()
        while True:
            reached = self._try_to_reach(taken, over_at, last)
            late_seconds = 0.0 if isinstance(reached, OpeningPostponed) else self._may_come_late_for(taken, reached[1])
            if not isinstance(reached, OpeningPostponed) and late_seconds > 0:
                reached[0].close()
                self._rest(late_seconds)
                last = _LastReading()
                reached = self._try_to_reach(taken, over_at, last)
            if not isinstance(reached, OpeningPostponed) or reached.reason not in _TRIED_AGAIN:
                return reached
            if self.clock() + self.limits.connect_pause_seconds >= until:
                return reached
            self._rest(self.limits.connect_pause_seconds)

    def _try_to_reach(self, taken: TakenOver, over_at: float, last: _LastReading) -> Reached | OpeningPostponed:
        if (early := self.pace.postpones(self.clock())) is not None:
            return early
        try:
            connection = self.connect()
        except HostError as error:
            return self._unreached(error)
        kept = False
        try:
            if (refused := self._greet(connection, taken.epoch)) is not None:
                return refused
            said = self._say(connection, taken, over_at, last)
            if isinstance(said, OpeningPostponed):
                return said
            kept = True
            self.pace.answered(operation=False)
            return connection, said
        except HostError as error:
            return self._unreached(error)
        finally:
            if not kept:
                connection.close()

    def _greet(self, connection: HostConnection, epoch: int) -> OpeningPostponed | None:
        """None: the connection is ready."""
        seconds = self.limits.request_timeout_seconds
        match connection.greet(timeout_seconds=seconds, while_waiting=self.heartbeat):
            case Ready():
                return None
            case Busy():
                return self._come_back("busy", "OldHost is busy when we greet it")
            case Banned() | ConnectionInUse() | NoService() as told:
                return self._not_told(told, epoch)
            case other:
                return self._refused(NoService("unreadable", f"OldHost answers our greeting by {type(other).__name__}"))

    def _unreached(self, error: HostError) -> OpeningPostponed:
        match error:
            case NoAccess(reason=reason, retry_after=seconds):
                return self._refused(NoService(reason, str(error), seconds))
            case CertificateRefused():
                return self._refused(NoService("credentials", str(error)))
            case Unreadable():
                return self._refused(NoService("unreadable", str(error)))
            case Silent():
                return self._come_back("silent", f"OldHost takes the connection and our request: {error}")
        return self._come_back("connection", str(error))

    def _may_come_late_for(self, taken: TakenOver, said: Evidence | OutOfRange) -> float:
        """Seconds from now in which an operation may still be applied late."""
        if not taken.may_be_late or (isinstance(said, Evidence) and self._is_certain(taken, said, exact=True)):
            return 0.0
        return self.first_contact.late_for(self.limits.late_seconds, self.clock())

    def _is_certain(self, taken: TakenOver, said: Evidence, *, exact: bool = False) -> bool:
        """Whether nothing depends on what may still be applied late. `exact`: and nobody else has written since."""
        newest = taken.newest_written
        if newest is None:
            return False
        if said.expected is not None:
            return said.expected == newest + 1 if exact else said.expected > newest
        return all(said.told(row.nonce) for row in taken.written)

    def _say(
        self, connection: HostConnection, taken: TakenOver, over_at: float, last: _LastReading
    ) -> Evidence | OutOfRange | OpeningPostponed:
        """What the host says, as far as its kind can be asked."""
        expected, outcomes = None, {}
        if self._plan.has_count:
            read = self._read_expected(connection, taken, over_at, last)
            if not isinstance(read, Expected):
                return read
            expected = read.nonce
        elif taken.next_nonce is None:
            expected = connection.ready.expected
        begins_with = self._begins_with(taken, connection.ready, expected)
        if begins_with is not None:
            expected = None
        if self._plan.outcomes and (begins_with is None or self.capabilities.outcome is AskedOutcomes.BY_ID):
            told = self._read_outcomes(connection, taken, expected, over_at)
            if isinstance(told, OpeningPostponed):
                return told
            outcomes = told
        resends, unknown = self._resends(taken, connection.ready)
        if begins_with is not None:
            resends, unknown = Resends.NEVER, "OldHost has begun to count anew since"
        return Evidence(
            expected,
            self._plan.proves_applied,
            outcomes,
            resends,
            self.resent_types,
            unknown="OldHost itself does not know" if outcomes else unknown,
            incarnation=connection.ready.incarnation,
            begins_with=begins_with,
        )

    def _begins_with(self, taken: TakenOver, ready: Ready, expected: int | None) -> int | None:
        """The number with which the host begins anew; None: it goes on. By its declaration: with each session, or once
        a day, which shows in its lowest number. What it then wants next proves nothing about what was sent before.
        """
        if taken.next_nonce is None:
            return None
        lowest, numbering = self.capabilities.lowest, Numbering.of(self.capabilities, taken.base)
        if self.capabilities.resets is Resets.SESSION:
            return lowest if ready.expected is None else ready.expected
        told = ready.expected if expected is None else numbering.number(expected)
        fits = numbering.number(taken.next_nonce - len(taken.in_doubt)) == lowest
        return lowest if self.capabilities.resets is Resets.DAY and told == lowest and not fits else None

    def _position(self) -> dict[str, Any]:
        """By what a count is told apart from those of other rounds, if the host's numbers are others than ours."""
        if self.capabilities.resets is Resets.NEVER and self.capabilities.modulus is None:
            return {}
        base, near = self.ledger.position()
        return {"base": base, "last_known": near}

    def _resends(self, taken: TakenOver, ready: Ready) -> tuple[Resends, str]:
        """What may be sent again while nothing is known of it; and why not all, for an operator."""
        if self._plan.resends is not Resends.LAST:
            return self._plan.resends, "OldHost can't be asked about it"
        if not ready.incarnation or ready.incarnation != taken.incarnation:
            return Resends.NEVER, "OldHost, which would repeat it, was restarted since"
        if len(taken.written) > 1:
            return Resends.NEVER, "OldHost repeats only its last answer"
        return Resends.LAST, ""

    def _read_outcomes(
        self, connection: HostConnection, taken: TakenOver, expected: int | None, over_at: float
    ) -> dict[int, OutcomeTold] | OpeningPostponed:
        """What became of the operations that may have reached the host, in order, until one was not taken."""
        outcomes: dict[int, OutcomeTold] = {}
        for row in taken.written:
            if expected is not None and row.nonce >= expected:
                break
            told = self._read_outcome(connection, row, taken, over_at)
            if not isinstance(told, OutcomeTold):
                return told
            names_none = told.number is None and self.capabilities.outcome is not AskedOutcomes.LAST
            # A number of before a new beginning says nothing; the key does.
            is_ours = names_none or told.number == row.nonce or self.capabilities.outcome is AskedOutcomes.BY_ID
            # An operation that was rejected and used no number is rejected again.
            fate = ToldFate.UNKNOWN if not is_ours else told.fate if told.consumed else ToldFate.NOT_TAKEN
            outcomes[row.nonce] = replace(told, fate=fate)
            if expected is None and outcomes[row.nonce].fate in {ToldFate.NOT_TAKEN, ToldFate.UNKNOWN}:
                break
        return outcomes

    def _read_outcome(
        self, connection: HostConnection, row: InDoubt, taken: TakenOver, over_at: float
    ) -> OutcomeTold | OpeningPostponed:
        for _ in range(self.limits.expected_reads_max):
            if self.clock() >= over_at:
                break
            if not connection.is_alive():
                return self._hung_up(connection, 1)
            told = self._questions(taken.base).outcome(connection, row.nonce, row.key, self.heartbeat)
            match told:
                case OutcomeTold():
                    self.first_contact.answered(self.clock())
                    return told
                case Busy(retry_after):
                    self._rest(self.limits.busy_pause(retry_after))
                case Banned() | ConnectionInUse() | NoService():
                    return self._not_told(told, taken.epoch)
        return self._come_back("busy", "OldHost stays busy when it is asked for an outcome")

    def _read_expected(
        self, connection: HostConnection, taken: TakenOver, over_at: float, last: _LastReading
    ) -> Reading | OpeningPostponed:
        """What OldHost expects, by two equal readings, with the connection still open after the second.

        One reading is enough if it is certain (`final_nonces`): nothing may have been sent since the ledger's count, or
        OldHost says that all of it was. So a host that gives few answers per connection still gets operations.
        """
        certain = [Expected(nonce) for nonce in taken.final_nonces]
        readings = 0
        for _ in range(self.limits.expected_reads_max):
            if self.clock() >= over_at:
                break
            if readings and not connection.is_alive():
                return self._hung_up(connection, readings)
            answer = self._questions(taken.base).expected(connection, self.heartbeat, taken.near)
            match answer:
                case Expected() | OutOfRange():
                    self.first_contact.answered(self.clock(), answer.nonce if isinstance(answer, Expected) else 0)
                    readings += 1
                    before, last.value = last.value, answer
                    if answer == before or answer in certain:
                        return answer if connection.is_alive() else self._hung_up(connection, readings)
                case Busy(retry_after):
                    self._rest(self.limits.busy_pause(retry_after))
                case _:
                    return self._not_told(answer, taken.epoch)
        if last.value is None:
            return self._come_back("busy", "OldHost stays busy when it is asked for the expected nonce")
        return self._come_back("unsteady", f"the expected nonce kept changing; the last reading was {last.value}")

    def _not_told(self, answer: Banned | ConnectionInUse | NoService, epoch: int) -> OpeningPostponed:
        match answer:
            case Banned(retry_after):
                return OpeningPostponed(self.ledger.ban(epoch, self.limits.ban_span(retry_after)), "ban")
            case ConnectionInUse():
                self.reply_timeout.found_unfinished(self.clock())
                return self._come_back("in-use", "OldHost serves another connection")
            case NoService():
                return self._refused(answer)

    def _refused(self, refusal: NoService) -> OpeningPostponed:
        return self.pace.refused(self.clock(), refusal, self.limits.ban_seconds)

    def _hung_up(self, connection: HostConnection, answers: int) -> OpeningPostponed:
        reason, why = why_hung_up(connection.ending, answers)
        return self._refused(NoService(reason, why)) if reason == "unreadable" else self._come_back(reason, why)

    def _come_back(self, reason: str, message: str) -> OpeningPostponed:
        return OpeningPostponed(round(self.limits.come_back_seconds * 1000), reason, message)

    def _rest(self, seconds: float) -> None:
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0:
            with self.condition:
                self.condition.wait(min(left, self.limits.look_up_seconds))
            self.heartbeat()
