"""How much one client may ask: each token's quotas per minute, what it reads, and strangers.

Once a second a process stores its tokens' usage in MariaDB and reads that of the others. So a request costs no
statement, and quotas apply to all API processes together, except for what each lets through within that second. While
the database is away, and for a minute after, each process counts only its own usage: what the others used during the
outage arrives all at once then, and does not belong to the present minute. Which changes are emergencies is decided by
the rules as they were read some seconds ago.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import Caller
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.quota import Bucket, Quotas, What
from oldhost_sync.store.access import Usage, add_usage, forget_old_usage
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.intake.rules import DEFAULT_RULES, rules_of
from oldhost_sync.store.intake.schedule import due_in_minute, minute_of
from oldhost_sync.store.intake.validation import Acceptable

logger = logging.getLogger("oldhost_sync.api")

# By then all processes have stored what they used while the database was away.
COUNTS_ALONE_SECONDS = 60.0


@dataclass(slots=True)
class _Token:
    """`used`: since the last exchange. `minute`, `own`, `others`: for the present minute, as of the last exchange.

    `unreported`: refused requests that are not in an alert yet. `short_of`: the quota that was used up last.
    """

    buckets: dict[What, Bucket]
    used: Usage = field(default_factory=Usage)
    minute: int = 0
    own: Usage = field(default_factory=Usage)
    others: Usage = field(default_factory=Usage)
    unreported: int = 0
    short_of: What = "requests"


class QuotaKeeper:
    """The quotas in one API process, for the tokens of `host`."""

    def __init__(
        self, host: str, quotas: Quotas, database: Database, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self.quotas = quotas
        self._tokens: dict[str, _Token] = {}
        self._emergencies = _emergencies(DEFAULT_RULES)
        self._rules_at = self._alerts_at = float("-inf")
        self._counts_alone_until = float("-inf")
        self._has_forgotten = False

    # ---------------------------------------------------------------------------------------------------- in requests

    def request(self, caller: Caller) -> Problem | None:
        """Count one request; or return the refusal if the token's quota is used up."""
        return self._spend(caller, {"requests": 1})

    def changes(self, caller: Caller, event_types: Sequence[str]) -> None:
        """Count changes of these types. If they are too many, raises a Problem, 429, and counts none."""
        problem = self._spend(caller, self._counts(event_types))
        if problem is not None:
            raise problem

    def _counts(self, event_types: Sequence[str]) -> dict[What, int]:
        urgent = sum(event_type in self._emergencies for event_type in event_types)
        return {"changes": len(event_types), "emergencies": urgent}

    def scheduled(self, connection: Connection, changes: Sequence[Acceptable]) -> None:
        """Check that the emergencies among `changes`, together with those that their source has already scheduled for
        the same minutes, are within its quota, because they would all become due at once. Raises a Problem, 429.
        """
        most = self.quotas.emergencies
        minutes: dict[tuple[str, datetime], list[str]] = {}
        for change, at in self._emergencies_for_later(changes):
            minutes.setdefault((change.source, minute_of(at)), []).append(change.idempotency_key)
        for (source, minute), keys in minutes.items():
            others = due_in_minute(connection, self._host, source, self._emergencies, minute, most + 1, but=keys)
            if others + len(keys) > most:
                over = (minute + timedelta(minutes=1)).replace(tzinfo=UTC) - datetime.now(UTC)
                wait = max(1.0, over.total_seconds())
                raise over_quota("emergencies", most, wait, action="Spread them over several minutes.")

    @contextmanager
    def given_back(self, caller: Caller, event_types: Sequence[str]) -> Iterator[None]:
        """Undo what :meth:`changes` counted if :meth:`scheduled` refuses the changes in the block."""
        try:
            yield
        except Problem as problem:
            if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
                self._give_back(caller, event_types)
            raise

    def _give_back(self, caller: Caller, event_types: Sequence[str]) -> None:
        token, now = self._token(caller.name), self._clock()
        counts = self._counts(event_types)
        for what, count in counts.items():
            token.buckets[what].take(-count, now)
        token.used = _sum(_sum(token.used, Usage(**counts), sign=-1), Usage(refused=1))
        token.unreported += 1
        token.short_of = "emergencies"

    def are_scheduled(self, changes: Sequence[Acceptable]) -> bool:
        """Whether there is anything for :meth:`scheduled` to check."""
        return bool(self._emergencies_for_later(changes))

    def _emergencies_for_later(self, changes: Sequence[Acceptable]) -> list[tuple[Acceptable, datetime]]:
        emergencies = self._emergencies if self.quotas.emergencies else frozenset()
        later = [(change, change.not_before) for change in changes if change.not_before]
        return [(change, due_at) for change, due_at in later if change.event_type in emergencies]

    def _spend(self, caller: Caller, counts: dict[What, int]) -> Problem | None:
        token, now = self._token(caller.name), self._clock()
        for what, count in counts.items():
            wait = token.buckets[what].wait_for(count, now)
            if wait > 0:
                token.used = _sum(token.used, Usage(refused=1))
                token.unreported += 1
                token.short_of = what
                return over_quota(what, self.quotas.of(what), wait)
        for what, count in counts.items():
            token.buckets[what].take(count, now)
        token.used = _sum(token.used, Usage(**counts))
        return None

    def _token(self, name: str) -> _Token:
        if name not in self._tokens:
            now = self._clock()
            whats: tuple[What, ...] = ("requests", "changes", "emergencies")
            self._tokens[name] = _Token({what: Bucket(self.quotas.of(what), now) for what in whats})
        return self._tokens[name]

    # ------------------------------------------------------------------------------------------------- beside requests

    async def keep(self) -> None:
        """Exchange once a second, until cancelled. That the database is away is logged elsewhere."""
        while True:
            await asyncio.sleep(http_limits.QUOTA_EXCHANGE_SECONDS)
            try:
                await self.exchange()
            except (Problem, StoreError):
                self.missed()
                logger.debug("can't share the usage of tokens with other processes: the database is away")
            except DBAPIError:
                logger.exception("can't share the usage of tokens with other processes")

    def missed(self) -> None:
        """An exchange was not possible."""
        self._counts_alone_until = self._clock() + COUNTS_ALONE_SECONDS

    async def exchange(self) -> None:
        """Store what was used, read what others used, raise alerts. Does nothing if nothing was used."""
        used = {name: token.used for name, token in self._tokens.items() if token.used != Usage()}
        unreported = self._due_alerts()
        if not used and not unreported:
            return
        usage_now = await self._database.run(lambda connection: self._write(connection, used, unreported))
        self._has_forgotten = True
        for name, usage in used.items():
            self._learn(self._tokens[name], usage, *usage_now[name])
        for name, (count, _) in unreported.items():
            self._tokens[name].unreported -= count

    def _due_alerts(self) -> dict[str, tuple[int, What]]:
        if self._clock() < self._alerts_at + http_limits.QUOTA_ALERT_SECONDS:
            return {}
        due = {name: (token.unreported, token.short_of) for name, token in self._tokens.items() if token.unreported}
        if due:
            self._alerts_at = self._clock()
        return due

    def _write(
        self, connection: Connection, used: dict[str, Usage], unreported: dict[str, tuple[int, What]]
    ) -> dict[str, tuple[int, Usage]]:
        if not self._has_forgotten:
            forget_old_usage(connection, self._host)
        if self._clock() >= self._rules_at + http_limits.QUOTA_RULES_SECONDS:
            self._emergencies = _emergencies(rules_of(connection, self._host))
            self._rules_at = self._clock()
        for name, (count, short_of) in unreported.items():
            severity = "critical" if short_of == "emergencies" else "warning"
            message = f"{name} uses more than its {self.quotas.of(short_of)} {short_of} a minute; the rest is refused"
            cause = f"over-quota:{name}"
            raise_alert(
                connection, self._host, "over-quota", severity, message, dedupe_key=cause, count=count, adds=True
            )
        return add_usage(connection, self._host, used)

    def _learn(self, token: _Token, used: Usage, minute: int, all_of_it: Usage) -> None:
        """Deduct from the buckets what other processes let through since the last exchange in this minute."""
        if minute != token.minute:
            token.minute, token.own, token.others = minute, Usage(), Usage()
        token.own = _sum(token.own, used)
        others = _sum(all_of_it, token.own, sign=-1)
        now = self._clock()
        for what, bucket in token.buckets.items():
            more = max(0, getattr(others, what) - getattr(token.others, what))
            bucket.take_of_others(more if now >= self._counts_alone_until else 0, now)
        token.others = others
        token.used = _sum(token.used, used, sign=-1)


def over_quota(what: What, per_minute: int, wait: float, action: str = "") -> Problem:
    """429. `wait`: seconds until the request may be repeated; infinite: it is too large for the quota. `action`: a
    better advice than to repeat it.
    """
    title = "The token's quota is used up"
    detail = f"This token may make {per_minute} {what} per minute. Nothing was recorded."
    action = action or "Repeat the request after Retry-After, with the same Idempotency-Key, and slow down."
    if math.isinf(wait):
        action = f"Send at most {per_minute} {what} in one request."
    seconds = 60 if math.isinf(wait) else math.ceil(wait)
    return Problem(429, "over-quota", title, detail, action, {"Retry-After": str(seconds)}, quota=what)


def _emergencies(rules: Mapping[str, PriorityClass]) -> frozenset[str]:
    return frozenset(event_type for event_type, cls in rules.items() if cls is PriorityClass.EMERGENCY)


def _sum(one: Usage, other: Usage, sign: int = 1) -> Usage:
    return Usage(
        one.requests + sign * other.requests,
        one.changes + sign * other.changes,
        one.emergencies + sign * other.emergencies,
        one.refused + sign * other.refused,
    )


# ----------------------------------------------------------------------------------------------- the pace of one client

# What a token reads, requests without a token, and lines in the log about refused sign-ins.

WINDOW_SECONDS = 60.0
# Addresses logged per minute; further ones appear only in the last line's count.
SOURCES_MAX = 20


class ReadingPace:
    """What one token reads has a pace, counted in bytes. `clock`: seconds, monotonic.

    A page of 500 changes takes 30 ms of the event loop, thirty times as much as one unit, and meanwhile no write is
    answered. So a request reserves the most that its path has cost so far, and waits until that fits; what it cost less
    is given back. Clients in a loop read at this pace, however many they are; people and normal programs never wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each token, when its reads so far would all be done at READ_BYTES_PER_SECOND.
        self._busy_until: dict[str, float] = {}
        self._costs: OrderedDict[str, int] = OrderedDict()

    async def turn(self, token: str, path: str) -> int:
        """Returns when `path` may be answered: the bytes that are reserved for it. Raises a Problem, 429, after a wait:
        a client that is refused at once asks again at once.
        """
        wait, reserved = self.reserve(token, path)
        is_refused = wait > http_limits.READ_WAIT_SECONDS_MAX
        if is_refused:
            self._count(token, -reserved)
        if wait > 0:
            await asyncio.sleep(min(wait, http_limits.READ_WAIT_SECONDS_MAX))
        if is_refused:
            raise too_much_read(wait - http_limits.READ_WAIT_SECONDS_MAX)
        return reserved

    def reserve(self, token: str, path: str) -> tuple[float, int]:
        """Returns the seconds to wait, and the bytes that are reserved."""
        now, reserved = self._clock(), http_limits.READ_BYTES_EACH + self._costs.get(path, 0)
        begin = max(now, self._busy_until.get(token, now))
        self._busy_until[token] = begin
        self._count(token, reserved)
        return begin - now - http_limits.READ_AHEAD_SECONDS, reserved

    def answered(self, token: str, path: str, reserved: int, size: int) -> None:
        """The answer had `size` bytes."""
        self._count(token, http_limits.READ_BYTES_EACH + size - reserved)
        self._costs[path] = max(size, self._costs.pop(path, 0))
        if len(self._costs) > http_limits.READ_COSTS_KEPT:
            self._costs.popitem(last=False)

    def _count(self, token: str, size: int) -> None:
        self._busy_until[token] += size / http_limits.READ_BYTES_PER_SECOND


def too_much_read(wait: float) -> Problem:
    rate = http_limits.READ_BYTES_PER_SECOND // 1000
    detail = f"This token may read {rate} kB a second, and reads much more."
    action = "Ask again after Retry-After, and less often. To follow changes, use the feed with its cursor."
    headers = {"Retry-After": str(math.ceil(wait))}
    return Problem(429, "too-much-read", "The token reads too much", detail, action, headers)


class AnonymousRateLimit:
    """Requests without a known token are answered at a limited rate for each address; faster requests wait. `clock`:
    seconds, monotonic.

    Cheap answers are no protection: 150 connections that ask again at once keep the event loop busy, however little
    each request costs, and writes are delayed. A waiting request costs nothing, and the wait is short, so each
    connection asks once in that time. No request is refused: a flood does not affect probes from other addresses; a
    probe from the same address is answered late, also for a moment after the flood has ended.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each address, when its requests so far would all be answered at STRANGERS_PER_SECOND.
        self._busy_until: dict[str, float] = {}

    async def turn(self, address: str) -> None:
        """Returns when this request may be answered."""
        wait = self.wait_of(address)
        if wait > 0:
            await asyncio.sleep(wait)

    def wait_of(self, address: str) -> float:
        """Reserve the next place of `address`; returns the seconds to wait for it."""
        now = self._clock()
        if len(self._busy_until) >= http_limits.STRANGERS_KEPT:
            self._busy_until = {known: until for known, until in self._busy_until.items() if until > now}
        ahead = http_limits.STRANGERS_AT_ONCE / http_limits.STRANGERS_PER_SECOND
        until = max(now, self._busy_until.get(address, now)) + 1 / http_limits.STRANGERS_PER_SECOND
        self._busy_until[address] = until = min(until, now + ahead + http_limits.STRANGER_WAIT_SECONDS_MAX)
        return until - now - ahead


class RefusedSignIns:
    """Logs refused sign-ins: the address and the reason, never what was sent. `clock`: seconds, monotonic.

    A client can't flood the log: each address and reason is logged once per minute, the rest is counted, and only a few
    addresses are logged per minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others = 0

    def note(self, address: str, why: str) -> None:
        """Log or count one refused sign-in."""
        self.report_due()
        source = (address, why)
        if source in self._counts:
            self._counts[source] += 1
        elif len(self._counts) < SOURCES_MAX:
            self._counts[source] = 1
            logger.warning("refused a sign-in from %s: %s", address, why)
        else:
            self._others += 1

    async def keep(self) -> None:
        """Log what was counted, until cancelled."""
        while True:
            await asyncio.sleep(WINDOW_SECONDS)
            self.report_due()

    def report_due(self) -> None:
        """Log once a minute how many more there were."""
        now = self._clock()
        if now - self._began < WINDOW_SECONDS:
            return
        for (address, why), count in self._counts.items():
            if count > 1:
                logger.warning("refused %d more sign-ins from %s within a minute: %s", count - 1, address, why)
        if self._others:
            logger.warning("refused %d more sign-ins from other addresses within a minute", self._others)
        self._began, self._others = now, 0
        self._counts.clear()
