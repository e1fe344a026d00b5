"""Plans for the users of this API process: each is simulated in a separate process, one at a time.

In this process a simulation would hold Python's global lock for seconds, and writes would not be answered.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass, field

from oldhost_sync.api import http_limits
from oldhost_sync.api.bounded_waits import Places
from oldhost_sync.api.database import Database
from oldhost_sync.api.problems import Problem, field_invalid, unavailable
from oldhost_sync.planner import Answer, Question, Scenario, live_arrivals, live_scenario, steady
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.read.host_condition import LiveLoad, read_live_load

logger = logging.getLogger(__name__)

_CHILD = (sys.executable, "-m", "oldhost_sync.planner")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The scenario as it is; or with `from_now`: the outstanding and scheduled changes with the writer's settings, and
    then `rate` new changes per second in the scenario's mix.
    """

    scenario: Scenario
    from_now: bool = False
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """`answer` is None if there is nothing to simulate. `live`: the load that a plan from now began with."""

    scenario: Scenario
    answer: Answer | None
    live: LiveLoad | None = None


@dataclass(slots=True)
class PlannerProcess:
    """`policy`: the writer's policy from the settings, for plans from now."""

    host: str
    database: Database
    policy: WriterPolicy
    _turns: Places = field(default_factory=lambda: Places(1, http_limits.PLANS_WAITING_MAX, _busy))

    async def plan(self, wanted: PlanRequest) -> Planned:
        """Raises a Problem: the plan is too large, too many plans wait, or the simulation takes too long."""
        _check_size(wanted)
        async with self._turns.turn(http_limits.PLAN_SECONDS_MAX):
            return await (self._from_now(wanted) if wanted.from_now else self._from_scenario(wanted.scenario))

    async def _from_scenario(self, scenario: Scenario) -> Planned:
        return Planned(scenario, await _played(Question(scenario)))

    async def _from_now(self, wanted: PlanRequest) -> Planned:
        live = await self.database.run(
            lambda connection: read_live_load(connection, self.host, http_limits.PLANNED_CHANGES_MAX)
        )
        question = await asyncio.to_thread(self._question, wanted, live)
        if question is None:
            return Planned(wanted.scenario, None, live)
        return Planned(question.scenario, await _played(question), live)

    def _question(self, wanted: PlanRequest, live: LiveLoad) -> Question | None:
        scenario = wanted.scenario
        new = steady(scenario, wanted.rate, scenario.duration_s) if wanted.rate else []
        changes = live_arrivals(live.outstanding, live.scheduled, live.now_ms, new)
        if not changes:
            return None
        return Question(live_scenario(scenario, self.policy, changes, live.blocked_ms), changes)


def _check_size(wanted: PlanRequest) -> None:
    changes = wanted.rate * wanted.scenario.duration_s if wanted.from_now else wanted.scenario.changes
    if changes > http_limits.PLANNED_CHANGES_MAX:
        name = "rate" if wanted.from_now else "changes"
        more = f"at most {http_limits.PLANNED_CHANGES_MAX:,} changes are planned here; `oldhost-sync plan` takes more"
        raise field_invalid(f"query.{name}", more)


async def _played(question: Question) -> Answer:
    child = await asyncio.create_subprocess_exec(
        *_CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(http_limits.PLAN_SECONDS_MAX):
            output, complaint = await child.communicate(question.to_json().encode())
    except TimeoutError:
        raise Problem(
            503,
            "plan-too-slow",
            "The plan takes too long",
            f"It was not ready within {http_limits.PLAN_SECONDS_MAX:.0f} s.",
            "Plan fewer changes, or use `oldhost-sync plan` on another machine.",
        ) from None
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if child.returncode != 0:
        logger.error("the planner's process failed: %s", complaint.decode(errors="replace")[-2_000:])
        raise RuntimeError("the planner's process failed; this process's log has its error")
    return Answer.from_json(output.decode())


def _busy() -> Problem:
    return unavailable(
        "plans-wait",
        "Other plans are running",
        "Only one plan runs at a time, and those before yours take too long.",
        "Try again later.",
        retry_after=5,
    )
