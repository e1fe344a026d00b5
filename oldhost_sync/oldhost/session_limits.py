"""What a session waits for and how long, and which limits must be longer than others.

The settle time is the central one (trap 1): once it has passed after a row was marked SENT, OldHost has applied the
operation or never will. So it must be longer than everything between the mark and the latest moment of an apply.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Seconds and counts."""

    # From the start of the SENT transaction to the first byte; after that the mark is too old to send safely (trap 2).
    send_within_seconds: float = 1.0
    # How often such a mark is renewed: MariaDB may be far away.
    renewals_max: int = 3
    # The next operation is marked SENT so long before the answer to the one on the wire is expected, plus the time of
    # two transactions (answer_times.py).
    mark_margin_seconds: float = 0.01
    # One exchange, writing and reading together. The wait for a silent host usually ends sooner (answer_times.py); the
    # settle time covers the longest wait anyway.
    request_timeout_seconds: float = 5.0
    # After this long since SENT the operation can't be applied any more.
    settle_seconds: float = 10.0
    # How long a session tries to get the connection before it tells the writer to come back.
    reconnect_seconds_max: float = 20.0
    connect_pause_seconds: float = 0.5
    # While an operation in doubt may still be applied late: OldHost is asked at once, and again after each of these
    # pauses. Most late operations are applied within them; only the others wait for the settle time.
    early_look_pauses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    # A whole opening, with all its waiting and asking: well below the writer's limit for it (90 s), so that an opening
    # that was given up does not go on asking as a zombie.
    opening_seconds: float = 45.0
    # The wait before the second reading, after which the writer may halt: the settle time, but at most this. The
    # reading takes no longer than this. Together with `opening_seconds` it is below the writer's limit (90 s).
    second_look_seconds_max: float = 20.0
    # How long an operator who resolves a halt waits while OldHost is asked; if it can't be asked by then, the decision
    # is stored. The activity that records it has 30 s.
    count_seconds: float = 10.0
    # How soon the writer tries again after a failed opening, or after an expected nonce that kept changing.
    come_back_seconds: float = 2.0
    # Reads of the expected nonce until two in a row agree.
    expected_reads_max: int = 6
    # When OldHost says busy: how often the same bytes are sent again, and the bounds of each pause before that.
    busy_waits_max: int = 10
    busy_pause_seconds_min: float = 0.05
    busy_pause_seconds_max: float = 2.0
    # A ban whose length OldHost does not say, and the longest time without asking during one: asking does not prolong a
    # ban, while a garbage number would stop everything for that long.
    ban_seconds: float = 900.0
    # How long an operation waits at a free wire for the one that must be sent before it.
    predecessor_seconds: float = 10.0
    # A send lasts at most this long and releases the nonces of the rest: well below the writer's limit for a send
    # (120 s), however slow OldHost is, and however many emergencies are sent first.
    send_seconds: float = 30.0
    # How often a waiting thread wakes up, to heartbeat and to check that the session still exists.
    look_up_seconds: float = 0.5
    # How often the database is asked to store what must not be lost, such as a ban.
    insist_times: int = 5

    def __post_init__(self) -> None:
        # The rest of the settle time is for an operation that OldHost has read and still applies late.
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
        """The longest drain: the operation on the wire and the one marked behind it, a request's time each."""
        return 2 * self.request_timeout_seconds + self.send_within_seconds

    @property
    def second_look_seconds(self) -> float:
        """How long to wait until a wrong reading of the expected nonce should no longer occur."""
        return min(self.settle_seconds, self.second_look_seconds_max)

    def ban_span(self, retry_after: float | None) -> float:
        """How long a ban lasts: as long as OldHost says. It is asked again earlier if that is long."""
        return self.ban_seconds if retry_after is None else retry_after

    def asks_again(self, told_ms_ago: int) -> bool:
        """Whether OldHost is asked although the ban that it told of so long ago is not over."""
        return not 0 <= told_ms_ago < 1000 * self.ban_seconds

    def busy_pause(self, retry_after: float) -> float:
        """How long to wait when OldHost says busy: as it asks, within bounds."""
        return min(max(retry_after, self.busy_pause_seconds_min), self.busy_pause_seconds_max)
