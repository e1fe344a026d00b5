"""The promise for emergencies, watched from MariaDB alone: they are reported at half the promised time, for any cause.

OldHost away, a ban, a pause, a halt, no writer, a long queue: each one shows in the age of an emergency without a fate.
There is one alert per incident; it becomes critical when the promise is broken. Each incident is stored as a row.
Breaches between two polls are found in the fates, which also give the histogram of how long changes took, by class.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from prometheus_client import Gauge
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.forecast.rates import FateRates
from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.policy.rules.promise import CALM_MS, ClockSteps, Incident, Late, describe
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.relay.duty import HostFailures
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.read import late_emergencies
from oldhost_sync.store.read.late_emergencies import Ended, HostState, WaitingEmergency, late_cause, no_fault
from oldhost_sync.telemetry import AppliedWaits, FateMetrics

logger = logging.getLogger(__name__)

LATE = "emergency-late"
POLL_SECONDS = 1.0
# While no emergency waits, the fates are needed only for the metrics; more often for a while after a late emergency.
FATES_SECONDS = 10.0
LATE_FATES_SECONDS = 3.0
# A smaller step is clock drift, or the time that the query takes.
STEP_SECONDS = 2.0
# A time service keeps clocks within milliseconds; a host's promise for emergencies is some 30 s.
TOLD_SECONDS = 30.0
# The end is told at a smaller difference, so that one that drifts around the limit is not told again and again.
OVER_SECONDS = 15.0


@dataclass(slots=True)
class _Host:
    fates_at: float = float("-inf")
    more: bool = False
    waited: bool = False
    late: bool = False
    shown: bool = False
    last_late_at: float = float("-inf")
    newest_id: int = 0
    steps: ClockSteps = field(default_factory=ClockSteps)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one transaction found of a host. `more`: there are more fates to read. `is_late`: an emergency is or was.
    `incident`: the open one. `waits`: what the histograms show now; None: as before.
    """

    fates: list[Ended]
    more: bool
    is_late: bool
    incident: Incident | None
    newest_id: int
    waits: Mapping[PriorityClass, tuple[dict[int, int], int]] | None


@dataclass(slots=True)
class _Clock:
    """The database's clock, compared with our monotonic one. It was read between `began` and `ended`."""

    shown_s: float | None = None
    began: float = 0.0
    ended: float = 0.0

    def stepped_by(self, shown_s: float, began: float, ended: float) -> float:
        """By how much, at least, it was set since the last call; 0 if the query's own duration may explain it."""
        last, self.shown_s = self.shown_s, shown_s
        shortest, longest = began - self.ended, ended - self.began
        self.began, self.ended = began, ended
        if last is None:
            return 0.0
        passed = shown_s - last
        return passed - min(max(passed, shortest), longest)


@dataclass(eq=False)
class PromiseWatch:
    """A duty (see `duty`) for all hosts of `leaderships`; `owner` names this process in their leases. `promises`: what
    is promised for each host.
    """

    name = "watching the promise to emergencies"
    host = "all hosts"
    pause_s = POLL_SECONDS

    transactions: Transactions
    leaderships: Mapping[str, Leadership]
    conditions: Conditions
    owner: str
    promises: Callable[[str], Promises] = lambda _: USUAL_PROMISES
    waits: AppliedWaits | None = None
    metrics: FateMetrics | None = None
    clocks: ClockDifference | None = None
    monotonic: Callable[[], float] = time.monotonic
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _clock: _Clock = field(default_factory=_Clock)
    # By host, the rate at which changes get their fates.
    fate_rates: dict[str, FateRates] = field(default_factory=dict)

    async def run_once(self, now: float) -> float:
        """Check every host that this process is active for."""
        active = [host for host, leadership in self.leaderships.items() if leadership.held(now)]
        for host in self.leaderships.keys() - set(active):
            self.conditions.unknown(host, LATE)
        for host in self._hosts.keys() - set(active):
            self.fate_rates.pop(host, None)
            if self.waits:
                self.waits.forget(host)
        self._hosts = {host: self._hosts.get(host) or _Host(last_late_at=now) for host in active}
        for host in active if self.metrics else ():
            assert self.metrics is not None
            self.metrics.begin(host)
        if not active:
            return POLL_SECONDS
        began = self.monotonic()
        states, database_now = await self.transactions.run(
            lambda connection: late_emergencies.host_states(connection, self.owner)
        )
        if database_now is not None:
            ended = self.monotonic()
            self._notice_step(self._clock.stepped_by(database_now, began, ended))
            if self.clocks:
                self.clocks.saw(database_now, ended - began)
        with HostFailures() as failures:
            for host in active:
                with failures.of(host):
                    await self._check(host, states.get(host, HostState()), now)
        return POLL_SECONDS

    def _notice_step(self, step_s: float) -> None:
        """Correct ages when the clock was set; else every waiting emergency would seem late, or none for hours."""
        if abs(step_s) >= STEP_SECONDS:
            for host in self._hosts.values():
                host.steps = host.steps.stepped(host.newest_id, round(step_s * 1000))

    async def _check(self, name: str, current: HostState, now: float) -> None:
        host = self._hosts[name]
        waited, host.waited = host.waited, bool(current.emergencies)
        if not (current.emergencies or waited or host.more or now >= host.fates_at):
            return
        work = partial(self._transact, host=name, current=current, state=host, now=now)
        # A conflict is not retried: the next look is in a second, and the other hosts would wait.
        seen = await self.transactions.run(work, attempts=1)
        host.more, host.newest_id = seen.more, seen.newest_id
        self._count(name, seen.fates, now)
        if self.waits and seen.waits is not None:
            self.waits.show(name, seen.waits)
            host.shown = True
        self.conditions.found(
            name, LATE, None if seen.incident is None else _fact(seen.incident, self.promises(name)), now
        )
        late = seen.is_late
        host.late = late or now < host.last_late_at + CALM_MS / 1000
        host.last_late_at = now if late else host.last_late_at
        host.fates_at = now + (LATE_FATES_SECONDS if host.late else FATES_SECONDS)

    def _transact(self, connection: Connection, host: str, current: HostState, state: _Host, now: float) -> _Seen:
        """Changes only the database: the transaction may yet fail."""
        measured, more = late_emergencies.take_fates(connection, host, current.fates)
        fates = [replace(fate, took_ms=state.steps.took_ms(fate.change_id, fate.took_ms)) for fate in measured]
        late_emergencies.count_applied(connection, host, [fate for fate in fates if fate.outcome == "APPLIED"])
        shows = self.waits and (fates or not state.shown)
        waits = late_emergencies.applied_waits(connection, host) if shows else None
        waiting = late_emergencies.waiting_emergencies(connection, host) if current.emergencies else []
        seen = [fate.change_id for fate in fates] + [change.change_id for change in waiting]
        urgent = [fate for fate in fates if _is_urgent(fate)]
        waits_ms = [state.steps.wait_ms(change.change_id, change.age_ms) for change in waiting]
        late = Late.of(waits_ms, self.promises(host))
        calm = now >= state.last_late_at + CALM_MS / 1000
        is_late, incident = self._keep(connection, host, urgent, late, waiting, calm=calm)
        return _Seen(fates, more, is_late, incident, max([state.newest_id, *seen]), waits)

    def _count(self, host: str, fates: list[Ended], now: float) -> None:
        """Count fates after the commit, so that each counts once."""
        applied = sum(fate.outcome == "APPLIED" for fate in fates)
        self.fate_rates.setdefault(host, FateRates(now)).saw(now, len(fates), applied)
        promised = self.promises(host)
        for fate in fates if self.metrics else ():
            assert self.metrics is not None
            self.metrics.fates.labels(host, fate.priority_class.value, fate.outcome).inc()
            if _is_urgent(fate) and fate.took_ms > promised.emergency_ms:
                self.metrics.breaches.labels(host, "emergency").inc()
            if fate.outcome != "REFUSED" and fate.took_ms > promised.consistency_ms:
                self.metrics.breaches.labels(host, "consistency").inc()

    def _keep(
        self,
        connection: Connection,
        host: str,
        urgent: list[Ended],
        late: Late,
        waiting: list[WaitingEmergency],
        *,
        calm: bool,
    ) -> tuple[bool, Incident | None]:
        """Keep the host's incident; returns whether an emergency is or was late, and the incident while it is open."""
        promised = self.promises(host)
        ended = Late.of([fate.took_ms for fate in urgent], promised)
        is_late = bool(ended.warned or late.warned)
        incident = late_emergencies.open_incident(connection, host)
        if incident is None and not is_late:
            return False, None
        if incident is not None and not is_late and calm:
            late_emergencies.end_incident(connection, host)
            return False, None
        waited_ms = (ended + late).worst_ms
        cause = _cause(connection, host, waited_ms, waiting) if is_late else ""
        if is_late and not cause:  # what was found when it began may be over, and no longer found
            own = {fate.change_id for fate in urgent if fate.took_ms >= promised.warning_ms}
            cause = incident.cause if incident is not None else no_fault(connection, host, waited_ms=waited_ms, own=own)
        after = (incident or Incident()).looked(ended, late, cause)
        if after != incident:
            late_emergencies.keep_incident(connection, host, after, is_new=incident is None)
        return is_late, after


def _fact(incident: Incident, promised: Promises) -> Fact:
    severity, why = describe(incident, promised)
    return Fact(why, severity, count=incident.total.warned)


def _cause(connection: Connection, host: str, waited_ms: int, waiting: list[WaitingEmergency]) -> str:
    unrelayed = sum(change.unrelayed for change in waiting)
    return late_cause(connection, host, waited_ms=waited_ms, unrelayed=unrelayed, waiting=len(waiting))


def _is_urgent(ended: Ended) -> bool:
    """Whether it is an emergency; rejected and discarded ones count, too, since they waited as well."""
    return ended.priority_class is PriorityClass.EMERGENCY and ended.outcome != "REFUSED"


@dataclass(eq=False)
class ClockDifference:
    """How far MariaDB's clock is ahead of this process's: ages and due times are by MariaDB's, logs by ours. `shown`:
    the metric, in seconds; negative while MariaDB's clock is behind.
    """

    shown: Gauge
    wall: Callable[[], float] = time.time
    _is_told: bool = False

    def saw(self, database_s: float, took_s: float) -> None:
        """MariaDB's clock showed `database_s`, in seconds since 1970, at some time in the last `took_s` seconds."""
        now = self.wall()
        ahead_s = database_s - min(max(database_s, now - took_s), now)
        self.shown.set(ahead_s)
        if not self._is_told and abs(ahead_s) > TOLD_SECONDS:
            self._is_told = True
            way = "ahead of" if ahead_s > 0 else "behind"
            logger.warning(
                "MariaDB's clock is %.0f s %s this machine's: correct the one that is wrong", abs(ahead_s), way
            )
        elif self._is_told and abs(ahead_s) < OVER_SECONDS:
            self._is_told = False
            logger.warning("MariaDB's clock and this machine's agree again")
