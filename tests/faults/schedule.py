"""What goes wrong in a soak, and when: decided by a seed before anything runs, so that a seed names one schedule.

Each fault is one that the product promises to survive; spans stay within what the settle time is made for (a late apply
comes at most 1.5 s late), while whole processes stop for shorter and for longer than it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROCESSES = ("worker-1", "worker-2", "relay-1", "relay-2", "api", "simulator", "mariadb", "temporal")
# Servers take the machine's time when they start again: seldomer than the roles.
WEIGHTS = (5, 5, 2, 2, 2, 3, 2, 1)
LATE_APPLY_MS_MAX = 1500
PAUSE_SECONDS = (1.5, 6.5)


@dataclass(frozen=True, slots=True)
class Mishap:
    """One fault. `kind`: kill, stop, leave (SIGTERM), host (at OldHost), hang-up, renew or terminate (the workflow).

    Of the further nemeses: lock (rows that another program holds), clock (of the database), ban, end (the workflow, by
    hand), operate (an operator's act), roll (the workers, to the other release).
    """

    at_s: float
    kind: str
    target: str
    seconds: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict)

    def told(self) -> str:
        span = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind} {self.target}{span} {self.parameters or ''}".strip()

    @property
    def sort(self) -> str:
        """What it counts as in the table."""
        told = {"host", "renew", "terminate", "lock", "end", "operate"}
        return f"{self.kind} {self.target}" if self.kind in told else self.kind


# How often each further nemesis strikes, in seconds between two.
FURTHER_PAUSE_SECONDS: Mapping[str, tuple[float, float]] = {
    "locks": (30, 50), "clock": (15, 40), "ends": (20, 60), "operators": (5, 15), "upgrades": (120, 280),
}  # fmt: skip
# Not among them: a second release of the worker, which is there all the time.
RELEASES = "releases"
NEMESES = (*FURTHER_PAUSE_SECONDS, RELEASES)
# Around the beginning of a lock nothing else happens, so that whoever waits waits for it.
CALM_BEFORE_SECONDS, CALM_AFTER_SECONDS = 12.0, 12.0
LOCK_SECONDS = (8.0, 30.0)
PAUSED_SECONDS = (3.0, 15.0)
# About as long as it takes to replace two workers.
ROLL_SECONDS = 20.0
CLOCK_STEPS_SECONDS = (-7200, -120, -2, 2, 120, 7200)


def plan(
    seed: int, seconds: float, settle_seconds: float, nemeses: Iterable[str] = (), *, calm: bool = False
) -> list[Mishap]:
    """Mishaps from the start until `seconds`, in order of time. `calm`: those of the further nemeses alone, and none
    of them in the second half."""
    chosen = [name for name in NEMESES if name in set(nemeses) - {RELEASES}]
    # Of a calm soak the second half is left to processes that live long enough for a slope to say something.
    until_s = seconds / 2 if calm else seconds
    further = [mishap for name in chosen for mishap in _further(name, seed, until_s)]
    around = [mishap.at_s for mishap in further if mishap.kind == "lock"]
    usual = [] if calm else [one for one in _usual(seed, seconds, settle_seconds) if not _disturbs(one, around)]
    kept = [one for one in further if one.kind == "lock" or not _disturbs(one, around)]
    if "clock" in chosen:
        kept += _ban(seconds / 3, around)
    return sorted([*usual, *kept], key=lambda mishap: mishap.at_s)


def _disturbs(mishap: Mishap, calm: Iterable[float]) -> bool:
    ends_at = mishap.at_s + mishap.seconds
    return any(mishap.at_s < at + CALM_AFTER_SECONDS and at - CALM_BEFORE_SECONDS < ends_at for at in calm)


def _ban(at_s: float, calm: list[float]) -> list[Mishap]:
    """One, a second within the hour would halt; and the database's clock goes back in it."""
    while _disturbs(Mishap(at_s, "ban", "simulator", 3.0), calm):
        at_s += 1.0
    return [
        Mishap(at_s, "ban", "simulator"),
        Mishap(at_s + 0.7, "clock", "mariadb", parameters={"step": -7200}),
    ]


def _further(name: str, seed: int, seconds: float) -> list[Mishap]:
    chance = random.Random(f"{seed}/{name}")
    at_s, found = 0.0, []
    while (at_s := at_s + chance.uniform(*FURTHER_PAUSE_SECONDS[name])) < seconds - CALM_AFTER_SECONDS:
        found.append(_draw_further(name, chance, at_s))
    return found


def _draw_further(name: str, chance: random.Random, at_s: float) -> Mishap:
    match name:
        case "locks":
            table = chance.choice(("units", "entities", "outbox_events"))
            entity = f"B{chance.randrange(20)}" if table == "entities" else f"U{chance.randrange(30)}"
            held = {"entity_id": entity, "seconds": round(chance.uniform(*LOCK_SECONDS), 1)}
            return Mishap(at_s, "lock", table, parameters=held)
        case "clock":
            return Mishap(at_s, "clock", "mariadb", parameters={"step": chance.choice(CLOCK_STEPS_SECONDS)})
        case "ends":
            return _end(chance, at_s)
        case "upgrades":
            return Mishap(at_s, "roll", "workers", ROLL_SECONDS)
        case _:
            act = chance.choice(("pause", "resume", "flush", "retry", "discard", "resolve"))
            return Mishap(at_s, "operate", act, parameters={"which": chance.random()})


def _end(chance: random.Random, at_s: float) -> Mishap:
    """By Temporal's own tools: the run's, or one activity's; or the run is paused there for a while."""
    target = chance.choice(("terminate", "cancel", "reset", "pause", "complete", "fail"))
    if target == "pause":
        return Mishap(at_s, "end", target, parameters={"seconds": round(chance.uniform(*PAUSED_SECONDS), 1)})
    return Mishap(at_s, "end", target, parameters={"which": chance.random()})


def refused_units(seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Faults that last as long as the trouble: one unit is refused and no nonce used, another's operations use theirs
    and get an answer that the protocol does not have."""
    chance = random.Random(f"{seed}/refused")
    free, used = (f"U{number}" for number in chance.sample(range(30), 2))
    status = chance.choice((400, 403, 500))
    refusals: tuple[tuple[str, dict[str, Any]], ...] = (
        ("answer", {"status": status, "body": "<h1>Refused</h1>", "nonce": "unused"}),
        ("busy", {"retry_after": 0.2}),
        ("drop_before", {"reset": True}),
    )
    name, parameters = chance.choices(refusals, (3, 1, 1))[0]
    answer = {"status": chance.choice((409, 422, 500, 200)), "body": '{"error": "E-17"}', "nonce": "used"}
    return [
        (name, {**parameters, "label": "refused", "rule": {"entity_id": free}}),
        ("answer", {**answer, "label": "used", "rule": {"entity_id": used}}),
    ]


def _usual(seed: int, seconds: float, settle_seconds: float) -> list[Mishap]:
    chance = random.Random(seed)
    mishaps: list[Mishap] = []
    at_s = 2.0
    while at_s < seconds:
        mishaps.append(_draw(chance, at_s, settle_seconds))
        if chance.random() < 0.15:  # a second one in the first one's recovery
            mishaps.append(_draw(chance, at_s + chance.uniform(0, 1), settle_seconds))
        at_s += chance.uniform(*PAUSE_SECONDS)
    return sorted(mishaps, key=lambda mishap: mishap.at_s)


def _draw(chance: random.Random, at_s: float, settle_seconds: float) -> Mishap:
    kinds: tuple[tuple[int, Callable[[], Mishap]], ...] = (
        (5, lambda: Mishap(at_s, "kill", _process(chance), round(chance.uniform(0, 2), 1))),
        (2, lambda: Mishap(at_s, "stop", _process(chance), round(chance.uniform(0.2, 2), 1))),
        (2, lambda: Mishap(at_s, "stop", _process(chance), round(settle_seconds + chance.uniform(0.5, 4), 1))),
        (1, lambda: Mishap(at_s, "leave", chance.choice(PROCESSES[:5]), round(chance.uniform(0, 2), 1))),
        (9, lambda: Mishap(at_s, "host", *_host_fault(chance))),
        (1, lambda: Mishap(at_s, "hang-up", "simulator")),
        (1, lambda: Mishap(at_s, "renew", "workflow")),
        (1, lambda: Mishap(at_s, "terminate", "workflow")),
    )
    draw = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
    return draw()


def _process(chance: random.Random) -> str:
    return chance.choices(PROCESSES, WEIGHTS)[0]


def _host_fault(chance: random.Random) -> tuple[str, float, dict[str, Any]]:
    name = chance.choice(
        (
            "drop_before",
            "drop_after",
            "apply_late",
            "cut_reply",
            "garbage",
            "hang",
            "busy",
            "refuse",
            "slow",
            "idle_close",
            "answer",
        )
    )
    parameters: dict[str, Any] = {"next": chance.randint(1, 3), "on": chance.choice(("sync", "sync", "any"))}
    match name:
        case "drop_before" | "drop_after":
            parameters["reset"] = chance.random() < 0.5
        case "apply_late":
            parameters["delay_ms"] = chance.randint(50, LATE_APPLY_MS_MAX)
        case "garbage":
            parameters["reply"] = chance.choice(("bytes", "not_json", "status", "other_nonce"))
            parameters["applied"] = chance.random() < 0.5
        case "answer":
            status = chance.choice((200, 400, 409, 422, 500, 502))
            uses = ("used", "unused") if 400 <= status < 500 else ("used", "unused", "applied")
            body = chance.choice(("", "{}", "<h1>It works</h1>", '{"error": "E-17"}'))
            parameters |= {"on": "sync", "status": status, "body": body, "nonce": chance.choice(uses)}
        case "hang":
            parameters |= {"seconds": round(chance.uniform(0.3, 2), 1), "applied": chance.random() < 0.5}
        case "busy":
            parameters |= {"next": chance.randint(1, 8), "retry_after": round(chance.uniform(0.05, 0.5), 2)}
        case "slow":
            parameters["extra_ms"] = chance.randint(100, 1200)
        case "idle_close":
            parameters["after_ms"] = chance.randint(50, 500)
    return name, 0.0, parameters
