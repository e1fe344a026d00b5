"""What a host says as a session begins: it is reached over a new connection, greeted, and asked what it can tell of the
operations in doubt (`drivers/ambiguity.py`), for its expected nonce until two readings agree. Nothing is decided here.
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
from oldhost_sync.oldhost.errors import CertificateRefused, HostError, NoAccess, Silent, Unreadable
from oldhost_sync.oldhost.expected_nonce import FirstContact, Questions
from oldhost_sync.oldhost.ledger import Evidence, InDoubt, Ledger, TakenOver
from oldhost_sync.oldhost.numbers import Numbering
from oldhost_sync.oldhost.refusals import ConnectionPace, why_hung_up
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.oldhost.shared_connection import Condition
from oldhost_sync.policy.machine.events import OpeningPostponed

Connect = Callable[[], HostConnection]

# Causes that may be gone in a moment: retried during the opening, before the writer is told to come back.
_TRIED_AGAIN = frozenset({"connection", "in-use", "silent", "busy"})

Reading = Expected | OutOfRange
# A connection, and what OldHost says over it.
Reached = tuple[HostConnection, Evidence | OutOfRange]


@dataclass(slots=True)
class LastReading:
    """OldHost's last reading, over any connection of one look; the next reading has to be the same."""

    value: Reading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """How a host is reached and asked. `capabilities`: what its driver declares; `resent_types`: LWW event types whose
    operations may be sent twice. `reply_timeout`: what is known of how long this host's answers take.
    """

    ledger: Ledger
    connect: Connect
    condition: Condition
    clock: Clock
    limits: SessionLimits
    heartbeat: Heartbeat
    capabilities: Capabilities = OLDHOST
    resent_types: frozenset[str] = frozenset()
    reply_timeout: ReplyTimeout = field(default_factory=ReplyTimeout)
    first_contact: FirstContact = field(default_factory=FirstContact)
    pace: ConnectionPace = field(default_factory=ConnectionPace)

    @property
    def _plan(self) -> RecoveryPlan:
        return plan(self.capabilities)

    def _questions(self, base: int) -> Questions:
        numbering = Numbering.of(self.capabilities, base)
        return Questions(self.capabilities, self.limits, self.clock, self.reply_timeout, numbering)

    def _reach(self, taken: TakenOver, over_at: float) -> Reached | OpeningPostponed:
        """A connection, and the expected nonce from two equal readings.

        If OldHost closes a connection after two answers, the second reading is made over the next one, which can then
        answer once. Retries for a while: until OldHost notices that the last connection is gone, a delayed request may
        arrive over it; so wait for whatever may still be applied late.
        """
        until = min(over_at, self.clock() + self.limits.reconnect_seconds_max)
        last = LastReading()
        while True:
            reached = self._try_to_reach(taken, over_at, last)
            late_seconds = 0.0 if isinstance(reached, OpeningPostponed) else self._may_come_late_for(taken, reached[1])
            if not isinstance(reached, OpeningPostponed) and late_seconds > 0:
                reached[0].close()
                self._rest(late_seconds)
                last = LastReading()
                reached = self._try_to_reach(taken, over_at, last)
            if not isinstance(reached, OpeningPostponed) or reached.reason not in _TRIED_AGAIN:
                return reached
            if self.clock() + self.limits.connect_pause_seconds >= until:
                return reached
            self._rest(self.limits.connect_pause_seconds)

    def _try_to_reach(self, taken: TakenOver, over_at: float, last: LastReading) -> Reached | OpeningPostponed:
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
        self, connection: HostConnection, taken: TakenOver, over_at: float, last: LastReading
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
            outcomes[row.nonce] = replace(told, fate=self._fate(row, told))
            if expected is None and outcomes[row.nonce].fate in {ToldFate.NOT_TAKEN, ToldFate.UNKNOWN}:
                break
        return outcomes

    def _fate(self, row: InDoubt, told: OutcomeTold) -> ToldFate:
        """What an outcome says about this operation. By its key it may be that of an earlier one of the same change: a
        host tells of the newest.
        """
        can = self.capabilities
        by_key = can.outcome is AskedOutcomes.BY_ID
        if by_key and row.tried_before and told.fate is not ToldFate.NOT_TAKEN:
            if told.number is None or can.resets is not Resets.NEVER or can.modulus is not None:
                return ToldFate.UNKNOWN
            if told.number < row.nonce:
                return ToldFate.NOT_TAKEN
        names_none = told.number is None and can.outcome is not AskedOutcomes.LAST
        # A number of before a new beginning says nothing; the key does.
        is_ours = names_none or told.number == row.nonce or (by_key and not row.tried_before)
        # An operation that was rejected and used no number is rejected again.
        return ToldFate.UNKNOWN if not is_ours else told.fate if told.consumed else ToldFate.NOT_TAKEN

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
        self, connection: HostConnection, taken: TakenOver, over_at: float, last: LastReading
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
