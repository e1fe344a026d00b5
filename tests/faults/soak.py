"""`python -m tests.faults.soak --minutes 10 --seed 1`: the whole product under load while everything about it fails.

API, two relays, two workers, Temporal, MariaDB and OldHost are processes; applications write all three classes through
HTTP and keep receipts; a seeded schedule kills, stops, restarts and deceives. Then everything is made well again, dead
letters are decided by an operator, and `checker` gives the verdict. Exit code 1 when it is bad.

`--nemeses locks clock ends operators upgrades releases` adds what others do: rows that another program holds, a
database whose clock is stepped, runs ended by hand (and applications that only signal), operators at work, rolling
upgrades to a release to come and back again, and one worker of that release all the time. `--calm` leaves out
everything else. What must not grow is measured beside it (`leaks`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import http.client
import json
import math
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from oldhost_sync.stack.mariadb import EmbeddedMariaDB
from oldhost_sync.stack.processes import Child
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.outbox.books import Books, count_books, kept_books
from oldhost_sync.store.read.entities import status_expression
from oldhost_sync.store.schema_migration import migrate
from oldhost_sync.temporal.client import writer_handle, writer_policy
from tests.faults import checker
from tests.faults.database_clock import DatabaseClock
from tests.faults.further import Further
from tests.faults.history import holds
from tests.faults.leaks import LeakWatch
from tests.faults.load import MARKER, Load
from tests.faults.product import ROOT, Product
from tests.faults.release import next_release
from tests.faults.schedule import NEMESES, RELEASES, Mishap, plan, refused_units
from tests.faults.signals import SIGNAL_MARKER, SignalLoad

RATE_PER_SECOND = 8.0
HEALING_SECONDS_MAX = 180.0
# A run of the writer that is renewed by its length too, not only by us; and people may pause it.
TEMPORAL_OPTIONS = (
    "--dynamic-config-value",
    "limit.historyCount.suggestContinueAsNew=1000",
    "--dynamic-config-value",
    "frontend.WorkflowPauseEnabled=true",
)
# Until the run that all workers know has begun, wherever the last of them was killed before.
ROLL_ENDS_SECONDS = 8.0
ROLES = ("worker-1", "worker-2", "relay-1", "relay-2", "api")


@dataclass
class Soak:
    """One run; everything it makes is in `folder`."""

    folder: Path
    seed: int
    seconds: float
    rate: float = RATE_PER_SECOND
    nemeses: tuple[str, ...] = ()
    calm: bool = False
    rolls: list[tuple[float, float]] = field(default_factory=list)
    done: list[tuple[float, Mishap]] = field(default_factory=list)
    away: str = ""
    waiting: float = math.inf
    verdict: checker.Verdict | None = None

    def run(self) -> bool:
        """Whether the verdict is good."""
        mariadb = EmbeddedMariaDB(self.folder / "mariadb")
        temporal = EmbeddedTemporal(self.folder / "temporal", options=TEMPORAL_OPTIONS)
        with mariadb, temporal, contextlib.ExitStack() as stack:
            urls = mariadb.create_database("soak")
            migrate(urls.migration)
            clock = stack.enter_context(DatabaseClock(mariadb.port)) if "clock" in self.nemeses else None
            seen = dataclasses.replace(urls, app=clock.url(urls.app)) if clock else urls
            product = stack.enter_context(Product(self.folder, seen, temporal.address, seed=self.seed, forked=False))
            self._mariadb, self._temporal, self._product = mariadb, temporal, product
            self._further = Further(product, urls.app, clock)
            return self._run()

    def _run(self) -> bool:
        product = self._product
        self._start_all()
        self._refuse()
        load = Load(product.api, self.seed, self.rate)
        load.start()
        signals = SignalLoad(product, self.seed)
        if "ends" in self.nemeses:
            signals.start()
        mishaps = plan(self.seed, self.seconds, product.settings.settle_seconds, self.nemeses, calm=self.calm)
        self._leak_watch = LeakWatch(product, self.seconds, ROLES)
        try:
            with self._leak_watch:
                self._trouble(mishaps)
        finally:
            load.stop()
            if "ends" in self.nemeses:
                signals.stop()
        healing = self._heal(load)
        receipts = [receipt.as_dict() for receipt in load.receipts]
        self.verdict = self._judge(receipts, signals.as_dicts(), healing)
        return self.verdict.good

    # ---------------------------------------------------------------------------------------------------- the trouble

    def _start_all(self) -> None:
        product = self._product
        product.start_simulator()
        for number in (1, 2):
            product.start("worker", f"worker-{number}", **self._release(number))
            product.start("relay", f"relay-{number}")
        product.start_api()
        product.start_writer()

    def _release(self, number: int) -> dict[str, Any]:
        """The second worker is of the release to come, where two releases are asked for."""
        return {"code": self._to_come()} if RELEASES in self.nemeses and number == 2 else {}

    def _to_come(self) -> Path:
        folder = self.folder / "next"
        return folder if folder.exists() else next_release(folder)

    def _trouble(self, mishaps: list[Mishap]) -> None:
        began = time.monotonic()
        for mishap in mishaps:
            self._rest_until(began + mishap.at_s)
            self._say(f"{time.monotonic() - began:6.1f} s  {mishap.told()}")
            self.done.append((time.time(), mishap))
            self._cause(mishap)
        self._rest_until(began + self.seconds)

    def _cause(self, mishap: Mishap) -> None:
        # OldHost or Temporal may be away by an earlier mishap: then this one has nobody to happen to.
        with contextlib.suppress(OSError, RPCError, RuntimeError, ValueError, http.client.HTTPException):
            self._further.cause(mishap)
            match mishap.kind:
                case "kill":
                    self.away = mishap.target
                    self._child(mishap.target).kill()
                    self._rest(mishap.seconds)
                    self._start_again(mishap.target)
                    self.away = ""
                case "leave":
                    self.away = mishap.target
                    self._child(mishap.target).stop(20)
                    self._rest(mishap.seconds)
                    self._start_again(mishap.target)
                    self.away = ""
                case "stop":
                    self._child(mishap.target).send_signal(signal.SIGSTOP)
                    self._rest(mishap.seconds)
                    self._child(mishap.target).send_signal(signal.SIGCONT)
                case "host":
                    self._product.fault(mishap.target, **mishap.parameters)
                case "roll":
                    self._roll()
                case "hang-up":
                    self._product.admin("POST", "/actions/close-connection", {})
                case "renew":
                    self._product.ask(self._renew)
                case "terminate":
                    self._product.ask(lambda client: writer_handle(client, self._product.host).terminate("a mishap"))

    def _refuse(self) -> None:
        """Content and units that OldHost refuses, for as long as the trouble lasts."""
        self._product.fault("reject", rule={"field": "payload.poison", "equals": True})
        for name, parameters in refused_units(self.seed):
            self._product.fault(name, **parameters)

    def _roll(self) -> None:
        """The workers are replaced, one after the other, by those of the other release."""
        self._decide_letters()  # else after half an hour nearly every entity would wait behind one
        began = time.time()
        code = self._to_come() if len(self.rolls) % 2 == 0 else ROOT
        for name in ("worker-1", "worker-2"):
            self.away, child = name, self._child(name)
            child.stop()
            self._product.start_as(name, code)
            self.away = ""
            self._until(f"{name} to be at work", lambda child=child: "is at work" in child.said(), time.monotonic())
        self._rest(ROLL_ENDS_SECONDS)
        self.rolls.append((began, time.time()))

    def _child(self, name: str) -> Child:
        return {"mariadb": self._mariadb.child, "temporal": self._temporal.child}.get(name) or self._product.children[
            name
        ]

    def _start_again(self, name: str) -> None:
        match name:
            case "mariadb":
                self._mariadb.start()
            case "temporal":
                self._temporal.start()
            case "simulator":
                self._product.start_simulator()
                self._refuse()
            case _:
                self._product.children[name].start()

    async def _renew(self, client: Client) -> None:
        """Another policy makes the writer continue as new at once."""
        policy = writer_policy(self._product.settings.of_host(self._product.host))
        policy = dataclasses.replace(policy, probe_ms=policy.probe_ms + len(self.done))
        await writer_handle(client, self._product.host).signal("configure", policy)

    def _rest_until(self, moment: float) -> None:
        self._rest(moment - time.monotonic())

    def _rest(self, seconds: float) -> None:
        """Time passes; a role that ended by itself is started again, as in any deployment."""
        until = time.monotonic() + max(0.0, seconds)
        while True:
            self._further.pass_time()
            for name in ROLES:
                child = self._product.children[name]
                if not child.running and name != self.away:
                    self._say(f"         {name} had ended ({child.how_it_ended()})")
                    child.start()
            left = until - time.monotonic()
            if left <= 0:
                return
            threading.Event().wait(min(left, 0.2))

    # ------------------------------------------------------------------------------------------------------- healing

    def _heal(self, load: Load) -> float:
        """Everything is well again; gives the seconds until everything had its fate."""
        product = self._product
        self._say("healing")
        began = time.monotonic()
        product.no_faults()
        self._further.end()
        self._until("the API to answer", product.api.answers, began)
        load.settle(60)
        self._until("all to be settled", self._settled, began)
        return time.monotonic() - began

    def _settled(self) -> bool:
        """Whether every change has its fate; meanwhile an operator decides the dead letters."""
        if "operators" in self.nemeses:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                self._further.resume()
        self._decide_letters()
        waiting = self._product.sql("SELECT COUNT(*) AS n FROM outbox_events WHERE outcome IS NULL OR outcome = 'DEAD'")
        self.waiting = waiting[0]["n"]
        return self.waiting == 0

    def _decide_letters(self) -> None:
        """An operator decides the dead letters."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            status, page = self._product.api.call("GET", "/api/dead-letters?limit=100")
            letters = page.get("dead_letters", []) if status == 200 else []
            arrived = {
                entry["body"]["event_id"] for entry in self._product.journal() if entry["outcome"] == "applied"
            } if any(letter["unsure"] for letter in letters) else set()  # fmt: skip
            for letter in letters:
                # Retried, it arrives: what OldHost refused it takes now. Every third is given up.
                action = "discard" if letter["change_id"] % 3 == 0 else "retry"
                action = "confirm" if letter["change_id"] in arrived else action
                self._product.api.call(
                    "POST", f"/api/dead-letters/{letter['change_id']}/{action}", {"reason": "the soak is healing"}
                )

    def _until(self, what: str, holds: Any, began: float) -> None:
        """As long as it heals: an hour's dead letters, and what they hold, take longer than a minute's."""
        least, since = self.waiting, began
        while not holds():
            if self.waiting < least:
                least, since = self.waiting, time.monotonic()
            if time.monotonic() - since > HEALING_SECONDS_MAX:
                self._say(f"waited {HEALING_SECONDS_MAX:g} s in vain for {what}")
                return
            self._rest(0.3)

    # -------------------------------------------------------------------------------------------------------- verdict

    def _judge(self, receipts: list[dict[str, Any]], signals: list[dict[str, Any]], healing: float) -> checker.Verdict:
        product = self._product
        with contextlib.closing(product.connect_database()) as connection:
            database = checker.read_database(connection, _shown_status)
        (self.folder / "receipts.json").write_text(json.dumps(receipts))
        (self.folder / "database.json").write_text(json.dumps(database, default=str))
        (self.folder / "signals.json").write_text(json.dumps(signals))
        evidence = checker.gather(
            receipts,
            lambda path: product.admin("GET", path),
            database,
            bans_ordered=self._further.bans,
            signals=signals,
            locks=[dataclasses.asdict(one) for one in self._further.locks],
        )
        (self.folder / "journal.json").write_text(json.dumps(evidence.journal))
        verdict = checker.judge(evidence)
        verdict.violations["payloads in logs or history (I9)"] = list(self._leaks())
        kept, counted = self._books()
        verdict.violations["kept books (I5)"] = [] if kept in {None, counted} else [f"{kept}, counted {counted}"]
        verdict.figures["books read"] = "counted" if kept is None else "kept"
        verdict.violations["alerts of a halt"] = [
            alert["message"]
            for alert in database["alerts"]
            if "halt" in alert["kind"] or "invariant" in alert["message"]
        ]
        sorts = Counter(mishap.sort for _, mishap in self.done)
        verdict.figures["mishaps"] = f"{len(self.done)}: " + ", ".join(f"{n}x {s}" for s, n in sorted(sorts.items()))
        verdict.figures["healed within"] = f"{healing:.1f} s"
        verdict.figures |= self._waits(evidence.journal) | self._pauses(evidence.journal)
        (self.folder / "leaks.json").write_text(json.dumps(self._leak_watch.samples()))
        slopes = self._leak_watch.slopes()
        # Elsewhere processes live too briefly, and a relay that becomes active opens its connections.
        verdict.violations["leaks"] = [str(one) for one in slopes if self.calm and not one.is_level]
        verdict.figures |= {f"slope of {one.name}": one.told for one in slopes}
        verdict.figures["alerts"] = dict(Counter(alert["kind"] for alert in database["alerts"]))
        return verdict

    def _waits(self, journal: list[dict[str, Any]]) -> dict[str, str]:
        """How long after a mishap OldHost got its next operation: where nothing else went wrong
        meanwhile, and where it did."""
        received = sorted(entry["received_at"] for entry in journal if entry.get("received_at"))
        worst: dict[str, dict[str, float]] = {"alone": {}, "with others": {}}
        for at, mishap in self.done:
            after = next((moment for moment in received if moment > at), None)
            if after is not None:
                others = any(at < moment < after for moment, _ in self.done)
                found = worst["with others" if others else "alone"]
                name = f"{mishap.kind} {mishap.target.split('-')[0]}"
                found[name] = max(found.get(name, 0), after - at)
        return {
            f"worst wait for the next operation, mishaps {how}": ", ".join(
                f"{seconds:.1f} s ({name})" for name, seconds in sorted(found.items(), key=lambda item: -item[1])[:4]
            )
            for how, found in worst.items()
        }

    def _pauses(self, journal: list[dict[str, Any]]) -> dict[str, str]:
        """How long OldHost got nothing while the workers were replaced, and some seconds after."""
        received = sorted(entry["received_at"] for entry in journal if entry.get("received_at"))
        pauses = [
            max(after - before for before, after in pairwise(received) if after > began and before < ended)
            for began, ended in self.rolls
            if received and received[-1] > began
        ]
        told = ", ".join(f"{pause:.1f} s" for pause in pauses)
        return {"longest pauses in rolling upgrades and rollbacks": told} if pauses else {}

    def _books(self) -> tuple[Books | None, Books]:
        """As an overview reads them, where it relies on what is kept; and by counting everything."""
        engine = create_engine(self._product.database.app)
        with engine.connect() as connection:
            found = kept_books(connection, self._product.host), count_books(connection, self._product.host)
        engine.dispose()
        return found

    def _leaks(self) -> list[str]:
        logs = self._product.logs()
        found = ["a role's log"] if MARKER in logs or SIGNAL_MARKER in logs else []
        return found + (["Temporal's history"] if self._product.ask(self._history_has_marker) else [])

    async def _history_has_marker(self, client: Client) -> bool:
        handle = writer_handle(client, self._product.host)
        for _ in range(20):
            with contextlib.suppress(RPCError):
                return holds(await handle.fetch_history(), MARKER)
            await asyncio.sleep(0.5)
        return True

    def _say(self, text: str) -> None:
        print(text, flush=True)


def _shown_status(table: str, kind: str) -> str:
    """What the product shows; the checker's rules compare it with the fates."""
    return status_expression(host=f"{table}.host", kind=kind, id=f"{table}.id")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rate", type=float, default=RATE_PER_SECOND, help="writes a second")
    options.add_argument("--nemeses", nargs="*", default=[], choices=NEMESES, help="what others do as well")
    options.add_argument("--calm", action="store_true", help="nothing but what --nemeses name happens")
    options.add_argument(
        "--folder", type=Path, help="keep everything here (default: a temporary folder, kept if the verdict is bad)"
    )
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="oldhost-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        options.error(f"{folder} holds another run's servers and journal: name a new or an empty folder")
    soak = Soak(folder, given.seed, given.minutes * 60, given.rate, tuple(given.nemeses), given.calm)
    good = soak.run()
    print(f"soak of {given.minutes:g} minutes, seed {given.seed}, {given.rate:g} writes/s")
    assert soak.verdict is not None
    print(soak.verdict.table())
    if good and given.folder is None:
        shutil.rmtree(folder)
    if not good:
        # The same seed does not end in the same way twice: a finding can only be explained by what this run left.
        print(f"what it left (database, journal, receipts, logs): {folder}", file=sys.stderr)
        further = f" --nemeses {' '.join(given.nemeses)}" if given.nemeses else ""
        further += " --calm" if given.calm else ""
        again = f"python -m tests.faults.soak --minutes {given.minutes:g} --seed {given.seed}{further}"
        print(f"again: {again}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
