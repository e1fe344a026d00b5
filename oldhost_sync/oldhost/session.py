"""The session: one host, one epoch, one connection, operations in strict order of their nonces.

Anything but a definite answer that consumes the nonce ends the session: the connection is closed, operations in doubt
are BOUND, the rest are WAITING, and the one recovery path (`recovery.py`) decides by OldHost's expected nonce. Nothing
here retries, reconnects or guesses.

Plain blocking code. The ledger, the connection, the clock and the condition variable are parameters, so that the
simulation runs the same code on its own clock. No lock is held during IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oldhost_sync.drivers.events import Banned, Busy, Expected
from oldhost_sync.oldhost.answer_times import MarkTime, ReplyTimeout
from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import HostError, LedgerError
from oldhost_sync.oldhost.expected_nonce import FirstContact, Questions
from oldhost_sync.oldhost.ledger import Ledger
from oldhost_sync.oldhost.refusals import ConnectionPace
from oldhost_sync.oldhost.send import QueuedSend, RefusedSend
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.oldhost.shared_connection import Condition, ExchangeListener, SharedConnection
from oldhost_sync.oldhost.wire_owner import WireOwner
from oldhost_sync.policy.machine.events import Probed, SendEnded


class Session:
    """The connection of one epoch. `next_nonce`: what OldHost expects at the start, as the ledger agrees; up to
    `bound_through` the nonces are already bound to their changes.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        connection: HostConnection,
        epoch: int,
        next_nonce: int,
        bound_through: int = 0,
        condition: Condition,
        clock: Clock,
        limits: SessionLimits,
        reply_timeout: ReplyTimeout,
        first_contact: FirstContact,
        pace: ConnectionPace,
        questions: Questions,
        listener: ExchangeListener | None = None,
    ) -> None:
        self.epoch = epoch
        self._shared = SharedConnection(
            epoch,
            ledger,
            connection,
            clock,
            limits,
            condition,
            reply_timeout,
            MarkTime(limits),
            first_contact,
            pace,
            questions,
            listener,
        )
        self._owner = WireOwner(self._shared, next_nonce, bound_through)

    @property
    def is_open(self) -> bool:
        return self._shared.is_open

    @property
    def closed_because(self) -> str:
        return self._shared.reason

    def send(
        self,
        change_ids: Sequence[int],
        heartbeat: Heartbeat,
        *,
        sequence: int = 0,
        accepted_at_ms: Mapping[int, int] | None = None,
        urgent: bool = False,
    ) -> SendEnded:
        """Send these changes in order until the session ends; returns one fate for each.

        `sequence` k reserves after k-1, since two sends reach the worker in any order (0: at once); urgent ones are
        counted apart. `urgent`: before all ordinary ones that are not on the wire. Any error ends the session; one that
        is neither a LedgerError nor a HostError is then raised.
        """
        now, refused = self._shared.clock(), RefusedSend(self._shared, heartbeat)
        until, accepted = now + self._shared.limits.send_seconds, accepted_at_ms or {}
        send = QueuedSend(change_ids, heartbeat, refused, accepted, sequence, urgent, now, until)
        self._owner.run(send)
        return send.ended(self._shared)

    def stop_sends(self) -> None:
        """End the running sends after the operation on the wire; their other changes wait. The session goes on."""
        self._owner.stop()

    def probe(self, heartbeat: Heartbeat) -> Probed:
        """Ask for the expected nonce and compare; a difference ends the session, and recovery decides what it means.

        Skipped while a send runs: the answers to its operations prove as much; and if the host can't be asked.
        """
        expected = 0
        if self._shared.plan.has_count and self.is_open and self._owner.is_idle and self._shared.try_wire():
            try:
                if self._shared.is_alive():
                    expected = self._probe(heartbeat)
            except HostError as error:
                self.close(f"asking for the expected nonce: {error}")
            except LedgerError as error:
                self.close(f"{type(error).__name__}: {error}")
            finally:
                self._shared.release_wire()
        return Probed(self.is_open, expected, self.closed_because)

    def watch(self) -> bool:
        """Check an idle session: close it if it is fenced or OldHost has hung up; False when it is over."""
        if self._shared.is_closed:
            return False
        try:
            current = self._shared.ledger.epoch()
            if current != self.epoch:
                self.close(f"epoch {current} took over")
        except LedgerError:
            pass  # without the database no other session can take over either
        if self._shared.try_wire():
            try:
                if self._shared.is_alive():
                    self._shared.connection.keep_alive()
            finally:
                self._shared.release_wire()
        return not self._shared.is_closed

    def close(self, reason: str) -> None:
        """Write nothing more. The connection is closed at once, or as soon as the operation on the wire has ended."""
        self._shared.close(reason)

    def begin_no_more(self, reason: str) -> None:
        """Let the operation on the wire finish, and one that is marked and was bound before; begin no others."""
        self._shared.drain(reason)

    def drain(self, reason: str, timeout_seconds: float, heartbeat: Heartbeat) -> bool:
        """Finish what may not be interrupted, record it, then close; False on timeout."""
        self.begin_no_more(reason)
        ended = self._owner.wait_idle(timeout_seconds, heartbeat)
        self.close(reason)
        return ended

    def _probe(self, heartbeat: Heartbeat) -> int:
        answer = self._shared.ask(heartbeat, self._owner.next_nonce)
        if isinstance(answer, Expected):
            if answer.nonce != self._owner.next_nonce:
                self.close(f"OldHost expects nonce {answer.nonce}, we expected {self._owner.next_nonce}")
            return answer.nonce
        if isinstance(answer, Banned):
            self.close("OldHost bans us")
            self._shared.retry(lambda: self._shared.ledger.ban(self.epoch, self._shared.ban_seconds(answer)), heartbeat)
        elif not isinstance(answer, Busy):
            self.close(f"asking for the expected nonce: {answer}")
        return 0
