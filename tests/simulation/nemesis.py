"""What goes wrong around the processes, by the seed: kills, stops, cuts, outages, and all that OldHost may do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oldhost_sync.oldhost.session_limits import SessionLimits

GARBAGE = ("bytes", "not_json", "status", "other_nonce")
SHARE_OF_RUNS = 0.25
PAUSE_S = 25.0
ANSWERS = (200, 202, 302, 400, 403, 409, 422, 429, 500, 502, 503)
BODIES = ("", "<h1>It works</h1>", "{}", '{"error": "E-17"}', '{"nonce": 777, "expected_nonce": 778}', "[]", "\u0000")


class Nemesis:
    """Strikes at random until `rest`. `kinds`: what this seed may suffer."""

    def __init__(self, world: Any, *, pause_s: float, meddle: bool) -> None:
        self.world = world
        self.hub = world.hub
        self.random = world.hub.random
        self.pause_s = pause_s
        self.resting = False
        self.counts: dict[str, int] = {}
        strikes = {
            name.removeprefix("do_"): getattr(self, name) for name in sorted(dir(type(self))) if name.startswith("do_")
        }
        if not meddle:
            strikes.pop("foreign_write")
            strikes.pop("restore")
        if world.kind.behaviour.resets == "session":  # what it has read is gone with its session
            strikes.pop("apply_late")
        names = [name for name in strikes if self.random.random() < 0.5] or ["kill_worker"]
        if meddle:
            names = [self.random.choice(("foreign_write", "restore")), *names]
        self._strikes: dict[str, Callable[[], None]] = {name: strikes[name] for name in names}
        self._meddle_left = 1
        self.hub.process("nemesis").spawn(self._run)

    def _run(self) -> None:
        while True:
            self.hub.sleep(self.random.expovariate(1 / self.pause_s))
            if self.resting:
                return
            name = self.random.choice(list(self._strikes))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.log("nemesis", name)
            self._strikes[name]()

    def rest(self) -> None:
        self.resting = True

    def _some(self, processes: list[Any]) -> Any:
        living = [one for one in processes if one.process.alive]
        return self.random.choice(living) if living else None

    # ------------------------------------------------------------------------------------------------------- processes

    def do_kill_worker(self) -> None:
        worker = self._some(self.world.workers)
        if worker:
            worker.process.powerless = self.random.random() < 0.3
            worker.process.kill()

    def do_stop_worker(self) -> None:
        worker = self._some(self.world.workers)
        if worker and not worker.process.stopped:
            worker.process.stop()
            span = self.random.choice((0.3, 1.5, 4, 8, 20, 60)) * (0.5 + self.random.random())
            self.hub.after(span, worker.process.go_on)

    def do_drain_worker(self) -> None:
        worker = self._some(self.world.workers)
        if worker and not worker.leaving and not worker.process.stopped:
            self.world.drain(worker)

    def do_jump_clock(self) -> None:
        worker = self._some(self.world.workers)
        if worker:
            worker.wall_offset += self.random.choice((-3600.0, -5.0, 5.0, 3600.0))

    def do_part_link(self) -> None:
        worker = self._some(self.world.workers)
        if worker:
            worker.link.parted_until = self.hub.now + self.random.random() * 20

    def do_kill_relay(self) -> None:
        relay = self._some(self.world.relays)
        if relay:
            relay.process.kill()

    def do_stop_relay(self) -> None:
        relay = self._some(self.world.relays)
        if relay and not relay.process.stopped:
            relay.process.stop()
            self.hub.after(self.random.random() * 40, relay.process.go_on)

    def do_kill_api(self) -> None:
        api = self._some(self.world.apis)
        if api:
            api.process.kill()

    # --------------------------------------------------------------------------------------------------------- services

    def do_terminate_workflow(self) -> None:
        self.world.temporal.terminate()

    def do_stop_temporal(self) -> None:
        self.world.temporal.away = True
        self.hub.after(self.random.random() * 20, self.world.temporal_back)

    def do_stop_database(self) -> None:
        self.world.weather.down = True
        self.hub.after(self.random.random() * 20, self.world.database_back)

    def do_slow_database(self) -> None:
        self.world.weather.delay_s = self.random.choice((0.02, 0.3, 0.9, 2.5))
        self.hub.after(self.random.random() * 30, self.world.database_quick)

    # ---------------------------------------------------------------------------------------------------------- OldHost

    def _fault(self, **wanted: Any) -> None:
        self.world.oldhost.faults.switch_on(
            {"next": self.random.choice((1, 1, 2)), "skip": self.random.choice((0, 0, 1, 3)), **wanted}
        )

    def do_lose_reply(self) -> None:
        self._fault(name="drop_after", reset=self.random.random() < 0.5)

    def do_drop_request(self) -> None:
        self._fault(name="drop_before", reset=self.random.random() < 0.5)

    def do_apply_late(self) -> None:
        limits: SessionLimits = self.world.limits
        # What the settle time is made of: the way to the wire, the way to OldHost's machine, and this.
        longest = limits.settle_seconds - limits.send_within_seconds - limits.request_timeout_seconds - 0.3
        self._fault(name="apply_late", delay_ms=self.random.random() * longest * 1000)

    def do_cut_reply(self) -> None:
        self._fault(name="cut_reply")

    def do_garbage(self) -> None:
        self._fault(name="garbage", reply=self.random.choice(GARBAGE), applied=self.random.random() < 0.5)

    def do_hang(self) -> None:
        self._fault(name="hang", seconds=self.random.random() * 40, applied=self.random.random() < 0.5, on="any")

    def do_be_slow(self) -> None:
        self._fault(name="slow", extra_ms=self.random.choice((500, 3000, 9000, 25000)), on="any")

    def do_be_busy(self) -> None:
        self._fault(
            name="busy", retry_after=self.random.choice((0.1, 1.0, 7.0)), on="any", next=self.random.choice((1, 3, 25))
        )

    def do_reject(self) -> None:
        self._fault(name="reject", consume=self.random.random() < 0.5, reason="refused by a rule")

    def do_refuse_connections(self) -> None:
        self._fault(name="refuse", next=self.random.choice((1, 5)))

    def do_close_idle(self) -> None:
        self._fault(name="idle_close", after_ms=self.random.random() * 3000)

    def do_hang_up(self) -> None:
        self.world.oldhost.hang_up()

    def do_restart_oldhost(self) -> None:
        self.world.oldhost.go_down()
        self.hub.after(self.random.random() * 10, self.world.oldhost.come_up)

    def do_ban(self) -> None:
        self.world.ban()

    def do_foreign_write(self) -> None:
        if self._meddle_left:
            self._meddle_left -= 1
            self.world.meddle("forward")
            self.world.oldhost.foreign_write()

    def do_restore(self) -> None:
        if self._meddle_left:
            self._meddle_left -= 1
            host = self.world.oldhost.host
            back = self.random.randint(0, min(6, host.expected_nonce - host.first_nonce))
            if back:
                self.world.meddle("back")
                self.world.oldhost.restore(host.expected_nonce - back)


class LaterNemesis:
    """Strikes in every fourth run, with one or more of its kinds, until `rest`.

    It has a generator of its own, so that a new kind moves no other choice of a seed.
    """

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
