"""Operators who do anything at any moment: what makes no sense, what contradicts, and the same thing twice at once.

They like the moments in which the writer is least itself: a rebuild, a ban, a halt. Their acts come late or out of
order, their answers may be lost; whatever they do, the promises hold, and the writer is as the database says. A
generator of their own keeps the seeds from before as they were.
"""

from __future__ import annotations

from random import Random
from typing import Any

from oldhost_sync.policy.machine.session import BreakerState
from oldhost_sync.store.ledger.fates import APART
from tests.simulation.roles import MARKER, Wish
from workflows import messages

SHARE_OF_RUNS = 0.3
LOOK_EVERY_S = 3.0
ACTS = (
    "pause",
    "pause",
    "resume",
    "resume",
    "flush",
    "flush one",
    "retry",
    "retry",
    "discard",
    "confirm",
    "resend",
    "adopt",
    "apply_now",
)


# Two of the writer's sweeps, of which one may fail.
TOLD_WITHIN_S = 250.0


class OperatorFuzzer:
    """Acts in some runs until `rest`. `counts`: acts by kind."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.hub = world.hub
        self.random = Random(f"{world.seed}/operators")
        self.resting = False
        self.counts: dict[str, int] = {}
        self.moment = ""
        self.differs: tuple[str, float] | None = None  # in which run, and since when
        self.process = self.hub.process("fuzzer")
        if self.random.random() < SHARE_OF_RUNS:
            self.pause_s = self.random.choice((4.0, 12.0, 40.0))
            self.process.spawn(self._run)

    def rest(self) -> None:
        self.resting = True

    def _run(self) -> None:
        next_at = self.hub.now
        while True:
            self.hub.sleep(LOOK_EVERY_S * (0.5 + self.random.random()))
            if self.resting:
                return
            moment = self._moment()
            fresh, self.moment = moment not in {"", self.moment}, moment
            self._compare()
            if self.hub.now >= next_at or (fresh and self.random.random() < 0.7):
                next_at = self.hub.now + self.random.expovariate(1 / self.pause_s)
                self._act()

    def _moment(self) -> str:
        machine = self.world.machine
        if machine is None:
            return ""
        if machine.loading.part is not None:
            return "rebuild"
        states = {BreakerState.OPEN: "ban", BreakerState.HALTED: "halt"}
        return states.get(machine.breaker.state, "")

    def _act(self) -> None:
        kind = self.random.choice(ACTS)
        if kind in {"flush", "confirm"} and self._apart():
            kind = "discard"
        twice = self.random.random() < 0.25
        if self.moment:
            self.world.sometimes.hit(f"an operator's act in a {self.moment}")
        if kind == "apply_now":
            self._apply_now()
            return
        action, request = self._request(kind)
        for _ in range(1 + twice):
            self.counts[f"operator: {kind}"] = self.counts.get(f"operator: {kind}", 0) + 1
            delay = self.random.choice((0.0, 0.0, 0.5, 8.0))
            self.hub.after(delay, lambda: self.world.temporal.update(action, request, self._answered(kind)))

    def _request(self, kind: str) -> tuple[str, messages.OperatorAct]:
        request = messages.OperatorAct(operator="fuzzer", reason="to see what happens")
        match kind:
            case "flush one":
                request.entity_type, request.entity_id = "unit", f"e{self.random.randrange(self.world.shape.entities)}"
                return "flush", request
            case "retry" | "discard" | "confirm":
                request.change_id = self._some_change()
            case "resend" | "adopt":
                request.mode = self.world.word_about(self.world.halted() or "") or kind
                return "resolve", request
        return kind, request

    def _some_change(self) -> int:
        """A dead letter if there is one, or a change that waits apart; now and then one that is none, or nothing."""
        apart = self._apart()
        if apart and self.random.random() < 0.5:
            return int(self.random.choice(apart))
        dead = [change_id for change_id, _, _ in self.world.dead_letters()]
        if dead and self.random.random() < 0.8:
            return int(self.random.choice(dead))
        newest = self.world.database.rows("SELECT MAX(id) FROM outbox_events")[0][0] or 0
        return self.random.randint(1, newest + 1)

    def _apart(self) -> list[int]:
        rows = self.world.database.rows(
            "SELECT DISTINCT a.change_id FROM nonce_requests_archive a JOIN outbox_events o ON o.id = a.change_id "
            "WHERE a.reason = ? AND o.outcome IS NULL ORDER BY a.change_id",
            APART,
        )
        return [change_id for (change_id,) in rows]

    def _apply_now(self) -> None:
        number = self.counts["operator: apply_now"] = self.counts.get("operator: apply_now", 0) + 1
        entity = f"e{self.random.randrange(self.world.shape.entities)}"
        payload = {"number": f"fuzz-{number}", "note": MARKER}
        self.world.applications.want(Wish(f"fuzz-{number}", "unit", entity, "guest_locked_out", payload, "apply_now"))

    def _answered(self, kind: str) -> Any:
        def answered(result: Any, refusal: str) -> None:
            self.world.log("fuzzer", kind, result if result is not None else refusal)
            if "is tried at once" in str(result):
                self.world.sometimes.hit("a change that waits apart retried")
            if "which waited apart" in str(result):
                self.world.sometimes.hit("a change that waits apart discarded")
            if result is not None and kind in {"resend", "adopt"}:
                self.world.sometimes.hit("halt resolved")

        return answered

    def _compare(self) -> None:
        """The writer is paused if the database says so, once nothing is on its way between them; or, where a run that
        was ended had the pause recorded behind its successor's back, when that one's next sweep has told it.
        """
        run = self.world.temporal.run
        instance = getattr(run, "instance", None)
        if instance is None or run.closed or instance.acts.pending or instance.acts.at_work or self._is_recording():
            return
        machine = instance.machine
        if not machine.loaded or machine.loading.part is not None or machine.draining:
            return
        rows = self.world.database.rows(
            "SELECT action FROM operator_audit WHERE action IN ('pause', 'resume') ORDER BY id DESC LIMIT 1"
        )
        noted = bool(rows) and rows[0][0] == "pause"
        if noted:
            self.world.sometimes.hit("paused, as the database says")
        if noted == (machine.paused is not None):
            self.differs = None
        elif self.differs is None or self.differs[0] != run.run_id:
            self.differs = run.run_id, self.hub.now
        elif self.hub.now - self.differs[1] > TOLD_WITHIN_S:
            self.world.always.fail(f"the database says paused: {noted}, the writer says {machine.paused}")

    def _is_recording(self) -> bool:
        """A decision of this run or of one before it may still reach the database."""
        return any(process.alive for process in self.world.deciding.values())
