"""Replies that are lost: how long OldHost then waits for the next operation, and what share of its capacity is kept.

Two kinds, both after the operation was applied: the connection is reset instead of the reply, which is noticed at once;
or nothing comes at all, which is noticed when the answer is overdue. Replies to questions are lost like those to
operations. Which are lost is fixed, so that a window is a whole number of losses with what lies between them: it begins
with one loss and ends with another. They are not evenly spaced: the product would take OldHost for a host that closes
each connection after so many answers, and be prepared.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from bench.deployment import Deployment, rivals
from bench.result import Picture, Result, Series
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox
from oldhost_sync.oldhost.answer_times import KNOWN_AFTER

RESET, SILENT = "connection reset", "no reply ever"
KINDS = {RESET: ("drop_after", {"reset": True}), SILENT: ("swallow", {})}
SHARES = (0.0, 0.001, 0.01, 0.02)


@dataclass(frozen=True, slots=True)
class Setting:
    """`lost`: the share of replies that is lost while it is measured, so often of the product; `kept_min`: the
    promise for `promised`.
    """

    name: str
    latency_ms: float
    given: dict[str, float]
    lost: float
    losses: int
    promised: float
    kept_min: float


# So many are lost at 400 ms that a loss is seen every few seconds; what 1 % costs is calculated from it.
SLOW = Setting("400 ms, settle time 10 s", 400, {}, 0.1, 2, 0.01, 0.95)
QUICK = Setting(
    "100 ms, settle time 5 s", 100, {"settle_seconds": 5.0, "request_timeout_seconds": 1.0}, 0.02, 3, 0.02, 0.85
)
STANDS_FOR_ALL = "plain loop"
NEXT_SECONDS_MAX = 2.0
# From one loss to the next, as a share of their mean distance, by how many there are.
GAPS = {1: (1.0,), 2: (0.8, 1.2), 3: (0.8, 1.2, 1.0)}
LOSS_SECONDS_MAX = 90.0
# Before the first loss: by then it is known how long answers take, or where no reply is waited for, it is at work.
WARM_UP, FEW = 2 * KNOWN_AFTER, 4


@dataclass(frozen=True, slots=True)
class Loss:
    """What was seen of one system and kind. `waits_s`: lost reply → next operation on the wire, each."""

    waits_s: list[float]
    operations: int
    seconds: float
    latency_ms: float

    @property
    def kept(self) -> float:
        """Share of OldHost's capacity in the window."""
        return self.operations * self.latency_ms / 1000 / self.seconds

    @property
    def cost_s(self) -> float:
        """Of one loss: all the time that OldHost did not work for us, the wait and what comes of it later."""
        return (self.seconds - self.operations * self.latency_ms / 1000) / len(self.waits_s)

    def kept_with(self, lost: float) -> float:
        """The same with another share of replies lost, as long as they are lost one at a time."""
        latency_s = self.latency_ms / 1000
        return latency_s / (latency_s + lost * self.cost_s)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was seen in one setting, by system and kind."""

    setting: Setting
    by_system: dict[str, dict[str, Loss]]

    def kept(self, kind: str) -> dict[str, float]:
        """By system, with the promised share of replies lost."""
        promised, is_measured = self.setting.promised, self.setting.promised == self.setting.lost
        return {
            name: found[kind].kept if is_measured else found[kind].kept_with(promised)
            for name, found in self.by_system.items()
            if kind in found
        }


def measure(stage: Stage) -> Result:
    result = Result(
        "lost",
        "Replies that are lost",
        conditions=[
            "a backlog; the operation is applied, its reply is lost: the connection reset, or nothing ever comes",
            "400 ms: settle time 10 s, request timeout 5 s, as shipped; 100 ms: settle time 5 s, request timeout 1 s",
            "OldHost's own times: the lost operation applied → the next one received",
            "rivals use the product's own session and recovery",
        ],
    )
    slow = _by_system(stage, SLOW)
    measured = [slow] if stage.quick else [slow, _by_system(stage, QUICK)]
    _waits_table(result, measured)
    _kept_table(result, measured)
    for kind in KINDS:
        waits = {name: max(found[kind].waits_s) for name, found in slow.by_system.items() if kind in found}
        what = f"reply lost ({kind}) → next operation on the wire, 400 ms, largest"
        result.target(what, waits.pop("product"), "<=", NEXT_SECONDS_MAX, "s", waits)
        for seen in measured:
            kept = seen.kept(kind)
            what = f"capacity kept with {100 * seen.setting.promised:g} % of replies lost ({kind}), {seen.setting.name}"
            result.target(what, kept.pop("product"), ">=", seen.setting.kept_min, "", kept)
    result.notes.append(
        "A reply that never comes is waited for somewhat longer than OldHost's slowest answers of late, before "
        "anything can be asked (oldhost_sync/oldhost/answer_times.py)."
    )
    result.pictures.append(_picture(slow.by_system["product"]))
    return result


def _by_system(stage: Stage, setting: Setting) -> Seen:
    """The rivals share the product's recovery: each loses one reply, and the plain loop stands for them in the rest."""
    found = {}
    beside = [name for name in rivals(stage) if setting is SLOW or name == STANDS_FOR_ALL]
    for name in ("product", *beside):
        kinds = KINDS if name in {"product", STANDS_FOR_ALL} else (RESET,)
        losses = 1 if stage.quick or name != "product" else setting.losses
        with (
            stage.simulator(setting.latency_ms) as simulator,
            Deployment(stage, simulator, setting.given) as deployment,
        ):
            _start(deployment, name, kinds)
            found[name] = {kind: _lose(deployment, simulator, setting, kind, losses) for kind in kinds}
    return Seen(setting, found)


def _start(deployment: Deployment, name: str, kinds: Iterable[str]) -> None:
    is_product = name == "product"
    put_into_outbox(deployment.engine, deployment.host, backlog(2_000), relayed=is_product)
    for role in ("worker", "relay") if is_product else (name,):
        deployment.start(role)
    if is_product:
        deployment.start_writer()
    deployment.wait_applied(WARM_UP if SILENT in kinds else FEW)


def _lose(deployment: Deployment, simulator: SimulatedHost, setting: Setting, kind: str, losses: int) -> Loss:
    """Lose a reply, and then so many more; the window is from the first to the last."""
    fault, wanted = KINDS[kind]
    simulator.fault(fault, label="first", next=1, **wanted)
    passed = 0
    for number, gap in enumerate(GAPS[losses]):
        passed += round(gap / setting.lost) - 1
        simulator.fault(fault, label=f"loss-{number}", on="any", skip=passed, next=1, **wanted)
    began = _wait_lost(deployment, simulator, fault, 1)
    ended = _wait_lost(deployment, simulator, fault, 1 + losses)
    simulator.no_faults()
    entries = simulator.journal(began - 1)  # from the operation whose reply was lost first
    deployment.wait_applied(ended + 1)
    waits = sorted(
        (float(new["received_at"] - old["applied_at"]) for old, new in pairwise(entries[: ended - began + 1])),
        reverse=True,
    )
    return Loss(
        waits[:losses],
        ended - began,
        entries[ended - began]["applied_at"] - entries[0]["applied_at"],
        setting.latency_ms,
    )


def _wait_lost(deployment: Deployment, simulator: SimulatedHost, fault: str, times: int) -> int:
    """Until so many replies were lost; gives how many operations were applied by then."""
    deployment.wait_for(f"{times} replies lost", lambda: simulator.fired(fault) >= times, LOSS_SECONDS_MAX)
    time.sleep(1.2 * simulator.stats()["latency_ms"] / 1000)  # a fault fires when its request comes in
    return int(simulator.stats()["applied"])


def _waits_table(result: Result, seen: list[Seen]) -> None:
    result.table(
        "Reply lost → next operation on the wire, s",
        ("", "OldHost", "how", "each", "OldHost's time lost by one"),
        [
            (name, each.setting.name, kind, ", ".join(f"{wait:.2f}" for wait in loss.waits_s), loss.cost_s)
            for each in seen
            for name, kinds in each.by_system.items()
            for kind, loss in kinds.items()
        ],
    )


def _kept_table(result: Result, seen: list[Seen]) -> None:
    result.table(
        "Share of OldHost's capacity kept, by the share of replies lost",
        ("", "OldHost", "how", *(f"{100 * share:g} %" for share in SHARES), "measured", "with lost"),
        [
            (
                name,
                each.setting.name,
                kind,
                *(loss.kept_with(share) for share in SHARES),
                loss.kept,
                f"{100 * each.setting.lost:g} %",
            )
            for each in seen
            for name, kinds in each.by_system.items()
            for kind, loss in kinds.items()
        ],
    )


def _picture(found: dict[str, Loss]) -> Picture:
    shares = [step / 1000 for step in range(21)]
    series = [Series(kind, [(100 * share, loss.kept_with(share)) for share in shares]) for kind, loss in found.items()]
    return Picture("lost", "Capacity kept at 400 ms", "replies lost, %", "share of OldHost's capacity", series)
