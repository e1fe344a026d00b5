"""How long to wait for a reply: what the rule costs with several hosts, and others beside it. Virtual time, no IO.

A host answers one request after the other; some replies never come. Where one is given up the next session needs some
time, is told that the connection is in use until OldHost is done with the operation, and looks again after the pauses
of the early looks, then after the settle time. That is what a session does (docs/protocol.md), as far as it costs time.
"""

from __future__ import annotations

import random
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bench.result import Result
from bench.stage import Stage
from oldhost_sync.oldhost.answer_times import FACTOR, HALF_LIFE, ReplyTimeout
from oldhost_sync.oldhost.session_limits import SessionLimits

OPERATIONS = 50_000
LOST = (0.0, 0.01, 0.02)
# From giving up to the first question on the new connection: through Temporal and the database.
OPENING_SECONDS = 0.3
LIMITS = SessionLimits()


@dataclass(frozen=True, slots=True)
class Host:
    """Its usual time for an operation, in seconds, and what may be unusual about it.

    `jitter`: even, as a share; `sigma`: log-normal; `slow_seconds` in a `slow_share` of cases, or half of the time,
    `slow_every_seconds`; it stands still for `pause_seconds` once in so many seconds.
    """

    seconds: float
    jitter: float = 0.0
    sigma: float = 0.0
    slow_seconds: float = 0.0
    slow_share: float = 0.0
    slow_every_seconds: float = 0.0
    pause_seconds: float = 0.0
    pause_every_seconds: float = 60.0

    def takes(self, chance: random.Random, now: float) -> float:
        """How long an operation takes that is begun at this second."""
        if self.slow_every_seconds and now // self.slow_every_seconds % 2:
            return self.slow_seconds
        if self.slow_share and chance.random() < self.slow_share:
            return self.slow_seconds
        jitter = chance.uniform(1 - self.jitter, 1 + self.jitter)
        usual = self.seconds * jitter * chance.lognormvariate(0, self.sigma)
        stands_still = self.pause_every_seconds - now % self.pause_every_seconds < usual
        return usual + (self.pause_seconds if stands_still else 0.0)


HOSTS = {
    "400 ms": Host(0.4),
    "100 ms": Host(0.1),
    "400 ms, give or take half": Host(0.4, jitter=0.5),
    "100 ms, log-normal, 0.5": Host(0.1, sigma=0.5),
    "400 ms, log-normal, 0.5": Host(0.4, sigma=0.5),
    "100 ms, log-normal, 1": Host(0.1, sigma=1.0),
    "100 ms, 3 s in 1 of 100": Host(0.1, slow_seconds=3.0, slow_share=0.01),
    "100 ms, 3 s in 1 of 2,000": Host(0.1, slow_seconds=3.0, slow_share=0.0005),
    "100 ms, stands still for 2 s each minute": Host(0.1, pause_seconds=2.0),
    "20 ms and 2 s, ten minutes each": Host(0.02, slow_seconds=2.0, slow_every_seconds=600.0),
}


class Quantile(ReplyTimeout):
    """Another rule: the 99th percentile of the last 200 answers instead of the slowest."""

    def __init__(self, factor: float) -> None:
        super().__init__(factor)
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def answered(self, seconds: float, *, operation: bool) -> None:
        self._slowest = 0.0
        super().answered(0.0, operation=operation)
        if operation:
            self._recent.append(seconds)
            insort(self._sorted, seconds)
            if len(self._recent) > 200:
                self._sorted.remove(self._recent.popleft())
            self._slowest = self._sorted[int(0.99 * len(self._sorted))]


class Endless(ReplyTimeout):
    """The rule until 0.2: the whole request timeout, always."""

    def wait_seconds(self, most: float) -> float:
        return most


RULES: dict[str, Callable[[], ReplyTimeout]] = {
    "request timeout": Endless,
    "slowest × 1.25": lambda: ReplyTimeout(1.25),
    "slowest × 1.5": lambda: ReplyTimeout(1.5),
    f"slowest × {FACTOR:g} (shipped)": ReplyTimeout,
    "slowest × 3": lambda: ReplyTimeout(3.0),
    f"slowest × {FACTOR:g}, half after {HALF_LIFE // 10}": lambda: ReplyTimeout(half_life=HALF_LIFE // 10),
    f"99th percentile × {FACTOR:g}": lambda: Quantile(FACTOR),
}


@dataclass
class Played:
    """`worked`: OldHost's seconds on operations; `false`: given up, though the reply was on its way."""

    seconds: float = 0.0
    worked: float = 0.0
    false: int = 0


def play(host: Host, reply_timeout: ReplyTimeout, lost: float, operations: int, seed: int = 1) -> Played:
    """One session after the other, always with work waiting."""
    chance, played = random.Random(seed), Played()
    most = LIMITS.request_timeout_seconds
    for _ in range(operations):
        began = played.seconds
        takes = host.takes(chance, began)
        played.worked += takes
        is_lost, wait = chance.random() < lost, reply_timeout.wait_seconds(most)
        if not is_lost and takes <= wait:
            played.seconds += takes
            reply_timeout.answered(takes, operation=True)
            continue
        played.false += not is_lost and takes <= most
        reply_timeout.gave_up(began)
        played.seconds = _settled_at(host, reply_timeout, chance, began, began + takes, began + wait)
    return played


def _settled_at(
    host: Host, reply_timeout: ReplyTimeout, chance: random.Random, began: float, done: float, given_up: float
) -> float:
    """When the next session has heard that the operation is applied."""
    now = given_up + OPENING_SECONDS
    for pause in (0.0, *LIMITS.early_look_pauses):
        now += pause
        if now >= done:
            break
        reply_timeout.found_unfinished(now)
    else:
        now = max(began + LIMITS.settle_seconds, done)
    asked = host.takes(chance, now)
    reply_timeout.answered(asked, operation=False)
    return now + asked


def measure(stage: Stage) -> Result:
    result = Result(
        "reply-timeout",
        "How long a reply is waited for",
        conditions=[
            "arithmetic in virtual time, always with work waiting; request timeout 5 s, settle time 10 s",
            f"a new session takes {OPENING_SECONDS:g} s and a question; questions are always answered",
        ],
    )
    operations = OPERATIONS // 10 if stage.quick else OPERATIONS
    found = {
        (host, rule, lost): play(HOSTS[host], RULES[rule](), lost, operations)
        for host in HOSTS
        for rule in RULES
        for lost in LOST
    }
    for lost in LOST:
        result.table(
            f"Share of OldHost's capacity kept with {100 * lost:g} % of replies lost",
            ("", *RULES),
            [(host, *(_kept(found[host, rule, lost]) for rule in RULES)) for host in HOSTS],
        )
    result.table(
        "Given up though the reply was on its way, of 10,000 operations, no reply lost",
        ("", *RULES),
        [(host, *(10_000 * found[host, rule, 0.0].false / operations for rule in RULES)) for host in HOSTS],
    )
    return result


def _kept(played: Played) -> float:
    return played.worked / played.seconds
