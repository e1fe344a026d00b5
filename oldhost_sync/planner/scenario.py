"""A scenario: how many changes of which kind arrive when. The same seed gives the planner and the demo the same
arrivals.

LWW changes come in episodes: a unit gets a few in a row (dirty, being cleaned, clean, inspected) and then none, so that
8,000 of them on 2,500 units can become 2,500 operations. Two thirds of the TXN changes are about bookings, which are
entities of their own; the rest and the emergencies are about units in service.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, PriorityClass
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises

# Within an episode, a unit's next LWW change arrives after about this share of the debounce.
EPISODE_GAP_IN_DEBOUNCES = 0.2
# The share of TXN changes that are about a booking; the others are about a unit.
BOOKING_SHARE = 2 / 3
# Every tenth unit's LWW changes are rates, so that two event types coalesce at the same time.
RATE_EVERY = 10
CHANGES_MAX = 500_000  # memory: some 0.5 KB each while planning
UNITS_MAX = 500_000
# Of seconds, milliseconds and rates: three months in seconds, and no planning takes for ever.
FIGURE_MAX = 1e7

UNIT_TXN_TYPES = ("checked_in", "checked_out", "door_code_changed")
BOOKING_TYPES = ("booking_created", "booking_cancelled")


class ScenarioError(Exception):
    """The scenario is invalid; the message says which figure and why. The planner's user has to correct it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The peak half hour by default: 10,000 changes, 80 % LWW, 18 % TXN, 2 % EMERGENCY. The `changes` include `bursts`
    bursts of `burst_changes` changes each, at `burst_per_s` a second.

    `ban_at_s` None: no ban. `latency_ms`: OldHost's time per request. `early_send_s` 0: no key is sent early.
    """

    units: int = 2_500
    changes: int = 10_000
    emergency_share: float = 0.02
    txn_share: float = 0.18
    duration_s: float = 1_800.0
    bursts: int = 4
    burst_changes: int = 600
    burst_per_s: float = 300.0
    ban_at_s: float | None = None
    ban_s: float = 900.0
    latency_ms: float = 400.0
    debounce_s: float = 120.0
    max_wait_s: float = 600.0
    txn_per_lww: int = 3
    early_send_s: float = 0.0
    emergency_promise_s: float = USUAL_PROMISES.emergency_ms / 1000
    consistency_promise_h: float = USUAL_PROMISES.consistency_ms / 3_600_000
    seed: int = 1

    @property
    def promises(self) -> Promises:
        return Promises(round(self.consistency_promise_h * 3_600_000), round(self.emergency_promise_s * 1000))

    def __post_init__(self) -> None:
        for name, wrong, why in self._problems():
            if wrong:
                raise ScenarioError(f"{name} is {getattr(self, name)}: {why}")

    def _problems(self) -> Iterator[tuple[str, bool, str]]:
        yield "units", not 1 <= self.units <= UNITS_MAX, f"it must be from 1 to {UNITS_MAX:,}"
        yield "changes", not 1 <= self.changes <= CHANGES_MAX, f"it must be from 1 to {CHANGES_MAX:,}"
        for name in ("emergency_share", "txn_share"):
            yield name, not 0 <= getattr(self, name) <= 1, "a share is from 0 to 1"
        yield "txn_share", self.emergency_share + self.txn_share > 1, "the sum with emergency_share is more than 1"
        for name in ("duration_s", "burst_per_s", "ban_s", "emergency_promise_s", "consistency_promise_h"):
            yield name, not 0 < getattr(self, name) < FIGURE_MAX, "it must be more than 0"
        for name in ("latency_ms", "debounce_s", "early_send_s"):
            yield name, not 0 <= getattr(self, name) < FIGURE_MAX, "it can't be negative"
        yield "max_wait_s", self.max_wait_s < self.debounce_s, "it can't be less than debounce_s"
        yield "txn_per_lww", self.txn_per_lww < 1, "it must be 1 or more"
        yield "bursts", self.bursts < 0, "it can't be negative"
        yield "burst_changes", self.bursts * self.burst_changes > self.changes, "bursts x burst_changes exceeds changes"
        length_s = self.burst_changes / self.burst_per_s
        yield "burst_changes", self.bursts * length_s > self.duration_s, "the bursts last longer than duration_s"
        yield "ban_at_s", self.ban_at_s is not None and self.ban_at_s < 0, "it can't be negative"


# The meaning of each figure, as the API and the command line show it.
MEANINGS = {
    "units": "Units that change",
    "changes": "Number of changes",
    "emergency_share": "Share of EMERGENCY changes",
    "txn_share": "Share of TXN changes; the rest is LWW",
    "duration_s": "Time over which they arrive",
    "bursts": "Number of bursts",
    "burst_changes": "Changes in one burst",
    "burst_per_s": "Rate during a burst",
    "ban_at_s": "When OldHost begins a ban; not given: never",
    "ban_s": "How long the ban lasts",
    "latency_ms": "OldHost's time for one request",
    "debounce_s": "How long an LWW key must be quiet",
    "max_wait_s": "The longest that newer changes of an LWW key can delay it",
    "txn_per_lww": "TXN turns to one LWW turn",
    "early_send_s": "How long a key must be quiet to be sent early to an idle OldHost; 0: never",
    "emergency_promise_s": "How old an emergency may be when OldHost has it",
    "consistency_promise_h": "How old any other change may be, in hours",
    "seed": "Seed of the random generator; another seed gives another day",
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One change, accepted `at_ms` after the scenario's start. `number` counts from 1 and is its change id in the
    planner; `step` counts the changes of its coalescing key from 0.
    """

    number: int
    at_ms: int
    priority_class: PriorityClass
    entity_type: str
    entity_id: str
    event_type: str
    step: int = 0
    property_id: str = ""

    @property
    def key(self) -> CoalescingKey:
        return CoalescingKey(self.entity_type, self.entity_id, self.event_type)

    @property
    def ref(self) -> ChangeRef:
        names = (self.entity_type, self.entity_id, self.event_type)
        return ChangeRef(self.number, self.priority_class, *names, self.at_ms, self.property_id)


def arrivals(scenario: Scenario) -> list[Arrival]:
    """All changes in the order of their arrival."""
    chance = Random(scenario.seed)
    instants = _instants(scenario, chance)
    classes = _classes(scenario, chance)
    episodes = _Episodes(scenario, classes.count(PriorityClass.LWW), chance)
    made: list[Arrival] = []
    steps: dict[CoalescingKey, int] = {}
    for number, (at_ms, cls) in enumerate(zip(instants, classes, strict=True), start=1):
        key = _subject(cls, number, episodes, scenario, chance)
        made.append(Arrival(number, at_ms, cls, *key, step=steps.get(key, 0)))
        steps[key] = steps.get(key, 0) + 1
    return made


def _instants(scenario: Scenario, chance: Random) -> list[int]:
    """Divide the time into equal parts with a burst in the middle of each; the rest is random, evenly distributed."""
    duration_ms = scenario.duration_s * 1000
    instants: list[float] = []
    for burst in range(scenario.bursts):
        start_ms = duration_ms * (burst + 0.5) / scenario.bursts
        start_ms = min(start_ms, duration_ms - 1000 * scenario.burst_changes / scenario.burst_per_s)
        instants += [start_ms + 1000 * index / scenario.burst_per_s for index in range(scenario.burst_changes)]
    instants += [chance.uniform(0, duration_ms) for _ in range(scenario.changes - len(instants))]
    return sorted(int(at) for at in instants)


def _classes(scenario: Scenario, chance: Random) -> list[PriorityClass]:
    emergencies = round(scenario.changes * scenario.emergency_share)
    txn = min(round(scenario.changes * scenario.txn_share), scenario.changes - emergencies)
    classes = [PriorityClass.EMERGENCY] * emergencies + [PriorityClass.TXN] * txn
    classes += [PriorityClass.LWW] * (scenario.changes - len(classes))
    chance.shuffle(classes)
    return classes


class _Episodes:
    """Chooses the unit of the next LWW change. The number of units in an episode at the same time makes the gap between
    a unit's changes a fifth of the debounce.
    """

    def __init__(self, scenario: Scenario, total: int, chance: Random) -> None:
        self._chance = chance
        self._total = total
        rate_per_s = total / scenario.duration_s
        self._at_work_max = max(1, round(rate_per_s * scenario.debounce_s * EPISODE_GAP_IN_DEBOUNCES))
        self._at_work: deque[tuple[int, int]] = deque()
        self._units = list(range(1, scenario.units + 1))
        chance.shuffle(self._units)
        self._begun = 0
        self._given = 0

    def next_unit(self) -> int:
        while len(self._at_work) < self._at_work_max and self._given < self._total:
            self._begin()
        if self._chance.random() < 0.1:  # the order within a round varies a little
            self._at_work.rotate(-1)
        unit, left = self._at_work.popleft()
        if left > 1:
            self._at_work.append((unit, left - 1))
        return unit

    def _begin(self) -> None:
        """Begin an episode: units in random order, none twice before all had one, each with about an equal share."""
        unit = self._units[self._begun % len(self._units)]
        self._begun += 1
        due = round(self._begun * self._total / len(self._units)) - self._given
        varied = due if self._begun == len(self._units) else due + self._chance.choice((-1, 0, 0, 1))
        length = max(1, min(varied, self._total - self._given))
        self._given += length
        self._at_work.append((unit, length))


def _subject(cls: PriorityClass, number: int, episodes: _Episodes, scenario: Scenario, chance: Random) -> CoalescingKey:
    if cls is PriorityClass.LWW:
        unit = episodes.next_unit()
        return CoalescingKey("unit", _unit_id(unit), "unit_status_changed" if unit % RATE_EVERY else "rate_changed")
    if cls is PriorityClass.EMERGENCY:
        return CoalescingKey("unit", _unit_id(chance.randint(1, scenario.units)), "guest_locked_out")
    if chance.random() < BOOKING_SHARE:
        return CoalescingKey("booking", f"B-{number:06}", chance.choice(BOOKING_TYPES))
    return CoalescingKey("unit", _unit_id(chance.randint(1, scenario.units)), chance.choice(UNIT_TXN_TYPES))


def _unit_id(unit: int) -> str:
    return f"U-{unit:05}"
