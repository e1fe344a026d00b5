"""Mishaps that came to the programme later. They have a generator of their own, so that the seeds
from before stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

SHARE_OF_RUNS = 0.25
PAUSE_S = 25.0
ANSWERS = (200, 202, 302, 400, 403, 409, 422, 429, 500, 502, 503)
BODIES = ("", "<h1>It works</h1>", "{}", '{"error": "E-17"}', '{"nonce": 777, "expected_nonce": 778}', "[]", "\u0000")


class LaterNemesis:
    """Strikes in every fourth run, with one or more of its kinds, until `rest`."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.hub = world.hub
        self.random = Random(f"{world.seed}/later")
        self.resting = False
        self.counts: dict[str, int] = {}
        kinds = {
            name.removeprefix("do_"): getattr(self, name) for name in sorted(dir(type(self))) if name.startswith("do_")
        }
        names = [name for name in kinds if self.random.random() < SHARE_OF_RUNS]
        self._strikes: dict[str, Callable[[], None]] = {name: kinds[name] for name in names}
        if names:
            self.hub.process("later-nemesis").spawn(self._run)

    def _run(self) -> None:
        while True:
            self.hub.sleep(self.random.expovariate(1 / PAUSE_S))
            if self.resting:
                return
            name = self.random.choice(list(self._strikes))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.log("nemesis", name)
            self._strikes[name]()

    def rest(self) -> None:
        self.resting = True

    def do_answer_otherwise(self) -> None:
        """What OldHost, or something before it, answers in a form that the protocol does not have. A 4xx of this kind
        was never applied; an empty yes whose nonce is used was: no client could tell a host that lies.
        """
        status, nonce = self.random.choice(ANSWERS), self.random.choice(("used", "used", "unused", "applied"))
        body = self.random.choice(BODIES)
        if 400 <= status < 500 and nonce == "applied":
            nonce = "used"
        if status == 200 and not body and nonce == "used":
            nonce = "applied"
        self.world.oldhost.faults.switch_on(
            {
                "name": "answer",
                "status": status,
                "body": body,
                "nonce": nonce,
                "next": self.random.choice((1, 1, 2, 4)),
                "skip": self.random.choice((0, 0, 1, 3)),
            }
        )

    def do_refuse_one(self) -> None:
        """A firewall that one payload always meets, or a host that is busy for one unit: for a while, or for ever."""
        entity = f"e{self.random.randrange(self.world.shape.entities)}"
        how = self.random.choice(({"name": "busy", "retry_after": 0.5}, {"name": "drop_before", "reset": True},
                                  {"name": "answer", "status": 403, "nonce": "unused"},
                                  {"name": "answer", "status": 500, "nonce": "unused"}))  # fmt: skip
        self.world.oldhost.faults.switch_on(
            {
                "next": self.random.choice((3, 40, 4000)),
                "label": f"refuses {entity}",
                "rule": {"entity_id": entity},
                **how,
            }
        )

    def do_reset_workflow(self) -> None:
        self.world.temporal.reset()

    def do_cancel_workflow(self) -> None:
        self.world.temporal.cancel()

    def do_jump_database_clock(self) -> None:
        """NTP steps it, a machine comes back from a snapshot, a replica with another clock takes over."""
        jump_s = self.random.choice(self.world.clock_jumps_s)
        self.world.database_offset += jump_s
        self.world.sometimes.hit(f"a clock set {'back' if jump_s < 0 else 'forward'}: database")

    def do_jump_temporal_clock(self) -> None:
        """Timers that run fire by it, so they are late if it is set back. Timeouts are not."""
        jump_s = self.random.choice(self.world.clock_jumps_s)
        self.world.step_temporal_clock(jump_s)
        self.world.sometimes.hit(f"a clock set {'back' if jump_s < 0 else 'forward'}: Temporal")

    def do_jump_worker_clock(self) -> None:
        jump_s = self.random.choice(self.world.clock_jumps_s)
        for worker in self.world.workers:
            worker.wall_offset += jump_s
