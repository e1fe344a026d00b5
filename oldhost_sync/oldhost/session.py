"""The session: one host, one epoch, one connection, operations in strict order of their nonces.

Whatever is not a definite, consumed answer ends the session: the connection is closed, what is in doubt is BOUND, the
rest WAITING, and the one recovery path (`recovery.py`) decides by OldHost's expected nonce. Nothing here retries,
reconnects or guesses.

Plain blocking code; the ledger, the connection, the clock and the waiting (`Condition`) are given to it, so that the
simulation runs this very code on its own time. No gate is held during IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import HostError, LedgerError
from oldhost_sync.oldhost.exchange import ExchangeListener
from oldhost_sync.oldhost.expected_nonce import ask
from oldhost_sync.oldhost.first_contact import FirstContact
from oldhost_sync.oldhost.ledger import Ledger
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.nonce_pipeline import Condition, NoncePipeline
from oldhost_sync.oldhost.reply_timeout import ReplyTimeout
from oldhost_sync.oldhost.send import RunningSend
from oldhost_sync.oldhost.shared_connection import SharedConnection
from oldhost_sync.oldhost.wire import Banned, Busy, Expected
from oldhost_sync.policy.events import Probed, SendEnded


class Session:
    """The connection of one epoch. `next_nonce`: what OldHost expects, by both sides, at the start; up to
    `bound_until` the nonces are bound to their changes already.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        connection: HostConnection,
        epoch: int,
        next_nonce: int,
        bound_until: int = 0,
        gate: Condition,
        clock: Clock,
        limits: SessionLimits,
        reply_timeout: ReplyTimeout,
        first_contact: FirstContact,
        listener: ExchangeListener | None = None,
    ) -> None:
        self.epoch = epoch
        self._pipeline = NoncePipeline(gate, clock, limits, next_nonce, bound_until)
        self._shared = SharedConnection(
            epoch, ledger, connection, clock, limits, self._pipeline, reply_timeout, first_contact, listener
        )

    @property
    def is_open(self) -> bool:
        return self._pipeline.is_open

    @property
    def closed_because(self) -> str:
        return self._pipeline.reason

    def send(
        self,
        change_ids: Sequence[int],
        beat: Heartbeat,
        *,
        sequence: int = 0,
        accepted_at_ms: Mapping[int, int] | None = None,
        urgent: bool = False,
    ) -> SendEnded:
        """Send these changes in order, as far as the session lasts; gives one fate for each.

        `sequence` k reserves after k-1 has: two sends reach the worker in any order (0: at once). `urgent`: before all
        that is not on the wire. Any error ends the session; what is not one of the ledger's or the host's is raised
        after that.
        """
        return RunningSend(self._shared, change_ids, beat, accepted_at_ms).run(sequence, urgent=urgent)

    def stop_sends(self) -> None:
        """The sends that are under way end with the operation on the wire; what is left waits. The session goes on."""
        self._pipeline.stop()

    def probe(self, beat: Heartbeat) -> Probed:
        """Ask the expected nonce and compare; a difference ends the session, and recovery says what it means.

        Not asked when the wire is not free in time: a probe can wait for the next one.
        """
        expected = 0
        if self._pipeline.take_wire(self._shared.limits.probe_wait_seconds, beat):
            try:
                if self._shared.is_alive():
                    expected = self._probe(beat)
            except HostError as error:
                self.close(f"asking for the expected nonce: {error}")
            except LedgerError as error:
                self.close(f"{type(error).__name__}: {error}")
            finally:
                self._shared.release_wire()
        return Probed(self.is_open, expected, self.closed_because)

    def watch(self) -> bool:
        """One look of the idle watch; False when the session is over. Lets go when fenced or when OldHost hung up."""
        if self._pipeline.is_closed:
            return False
        try:
            current = self._shared.ledger.epoch()
            if current != self.epoch:
                self.close(f"epoch {current} took over")
        except LedgerError:
            pass  # without the database nobody else can take over either
        if self._pipeline.try_wire():
            try:
                self._shared.is_alive()
            finally:
                self._shared.release_wire()
        return not self._pipeline.is_closed

    def close(self, reason: str) -> None:
        """Write nothing more. The connection goes at once, or as soon as the operation on the wire has ended."""
        self._shared.close(reason)

    def begin_no_more(self, reason: str) -> None:
        """What is on the wire or marked for it ends by itself; nothing comes after it."""
        self._pipeline.drain(reason)

    def drain(self, reason: str, timeout_seconds: float, beat: Heartbeat) -> bool:
        """Finish what is on the wire or marked for it, record that, then close; False when it took too long."""
        self.begin_no_more(reason)
        ended = self._pipeline.wait_idle(timeout_seconds, beat)
        self.close(reason)
        return ended

    def _probe(self, beat: Heartbeat) -> int:
        answer = ask(self._shared.connection, self._shared.limits, beat, self._shared.clock, self._shared.reply_timeout)
        if isinstance(answer, Expected):
            if answer.nonce != self._pipeline.next_nonce:
                self.close(f"OldHost expects nonce {answer.nonce}, we expected {self._pipeline.next_nonce}")
            return answer.nonce
        if isinstance(answer, Banned):
            self.close("OldHost bans us")
            self._shared.retry(lambda: self._shared.ledger.ban(self.epoch, self._shared.ban_seconds(answer)), beat)
        elif not isinstance(answer, Busy):
            self.close(f"asking for the expected nonce: {answer}")
        return 0
