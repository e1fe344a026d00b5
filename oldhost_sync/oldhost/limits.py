"""What a session waits for and how long, with the relations that keep it safe.

The settle time is the heart of it (trap 1): when it has passed since a row was marked SENT, OldHost has applied the
operation or never will. So it must be longer than all that may lie between the mark and the last moment of an apply.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """All in seconds, but for the counts."""

    # From before the SENT transaction began to the first byte; later it is too old to send safely (trap 2).
    send_within_seconds: float = 1.0
    # One exchange, writing and reading together. A silent host is mostly given up sooner (reply_timeout.py); the settle
    # time covers the longest wait all the same.
    request_timeout_seconds: float = 5.0
    # After SENT: when nothing of it can be applied any more.
    settle_seconds: float = 10.0
    # How long a session tries to get the connection before it tells the writer to come back.
    reconnect_seconds_max: float = 20.0
    connect_pause_seconds: float = 0.5
    # While something in doubt may still be applied late: OldHost is asked at once, and again after each of these.
    # Most that is applied late comes within these seconds; the settle time is waited for only by what did not.
    early_look_pauses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    # A whole opening, with all its waiting and asking: well below the writer's limit for it (90 s), so that no zombie
    # of an opening that was given up goes on asking.
    opening_seconds: float = 45.0
    # The wait before the second reading, after which the writer may halt: the settle time, at most this. Reading takes
    # no longer. Together with `opening_seconds` below the writer's limit (90 s).
    second_look_seconds_max: float = 20.0
    # How long an operator who resolves a halt waits while OldHost is asked; can it not be asked by then, his decision
    # is kept. The activity that records it has 30 s.
    count_seconds: float = 10.0
    # How long a probe waits for the wire, likewise (60 s); it is asked for again later.
    probe_wait_seconds: float = 20.0
    # After an opening without success, how soon the writer comes back; and after an unsteady expected nonce.
    come_back_seconds: float = 2.0
    # Reads of the expected nonce until two in a row agree.
    expected_reads_max: int = 6
    # OldHost says busy: the same bytes again, so often, never waiting longer than that at once.
    busy_waits_max: int = 10
    busy_pause_seconds_min: float = 0.05
    busy_pause_seconds_max: float = 2.0
    # A ban whose length OldHost does not say; and after how long it is asked again whatever it said: asking does not
    # prolong a ban, and believing a number that is garbage would stop everything for as long as that.
    ban_seconds: float = 900.0
    # How long an operation waits at a free wire for the one that must go before it.
    predecessor_seconds: float = 10.0
    # A send lasts so long at most, and gives back what is left: well below the writer's limit for a send (120 s),
    # however slow OldHost is, and however many emergencies go first.
    send_seconds: float = 30.0
    # How often those who wait look up, to heartbeat and to see whether the session still stands.
    look_up_seconds: float = 0.5
    # Of a ban that must not be forgotten: how often the database is asked to keep it.
    insist_times: int = 5

    def __post_init__(self) -> None:
        # Whatever processing the request timeout does not cover has at least as long again to come through late.
        if self.settle_seconds <= self.send_within_seconds + self.request_timeout_seconds:
            raise ValueError(
                f"the settle time ({self.settle_seconds} s) must be longer than the time to send "
                f"({self.send_within_seconds} s) and the request timeout ({self.request_timeout_seconds} s) together"
            )

    @property
    def late_seconds(self) -> float:
        """The part of the settle time that OldHost has to apply what it has read, after the send and the exchange."""
        return self.settle_seconds - self.send_within_seconds - self.request_timeout_seconds

    @property
    def drained_within_seconds(self) -> float:
        """What is on the wire and what is marked behind it may take a request's time each."""
        return 2 * self.request_timeout_seconds + self.send_within_seconds

    @property
    def second_look_seconds(self) -> float:
        """When a false reading of the expected nonce is over, as far as that can be known."""
        return min(self.settle_seconds, self.second_look_seconds_max)

    def ban_span(self, retry_after: float | None) -> float:
        """How long nobody asks after a ban: as OldHost says, but no longer than a ban is."""
        return self.ban_seconds if retry_after is None else min(retry_after, self.ban_seconds)

    def busy_pause(self, retry_after: float) -> float:
        """How long to wait when OldHost says busy: as it asks, within bounds."""
        return min(max(retry_after, self.busy_pause_seconds_min), self.busy_pause_seconds_max)
