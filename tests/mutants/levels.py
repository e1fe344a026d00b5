"""The parts of the fault programme that are let loose on a mutant."""

from __future__ import annotations

import sys
from dataclasses import dataclass

_PYTEST = ("pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header")


@dataclass(frozen=True, slots=True)
class Level:
    """`module`: what `python -m` runs, with its arguments; it fails when it finds something."""

    name: str
    module: tuple[str, ...]
    takes_seeds: bool = False

    def command(self, seeds: int) -> list[str]:
        return [sys.executable, "-m", *self.module, *(["--seeds", str(seeds)] if self.takes_seeds else [])]

    @property
    def tests(self) -> list[str]:
        """The test files and folders that it runs."""
        return [argument for argument in self.module if argument.startswith("tests/")]


def _tests(name: str, *arguments: str) -> Level:
    return Level(name, (*_PYTEST, *arguments))


SIMULATION = Level("simulation", ("tests.simulation", "--quiet", "--stop-at-first"), takes_seeds=True)
EXHAUSTIVE = Level("exhaustive faults", ("tests.exhaustive", "--only", "singles"))
STALLED = _tests("simulation, stalled after SENT", "tests/simulation/test_deadline.py")
BURST = _tests("simulation, a burst of emergencies", "tests/simulation/test_burst.py")
CLOCK_SET_BACK = _tests("simulation, Temporal's clock set back", "tests/simulation/test_clock_set_back.py")
UNIT = _tests("unit tests", "tests/unit/policy", "tests/unit/oldhost")
RELEASES = _tests("unit tests of releases", "tests/unit/policy/test_release.py", "tests/unit/worker")
WATCHES = _tests("unit tests of the relay", "tests/unit/relay", "tests/unit/temporal")
DELIVERY = _tests("unit tests of the delivery", "tests/unit/test_delivery.py")
STACK = _tests("unit tests of the stack", "tests/unit/stack")
CONFORMANCE = _tests("ledger conformance", "tests/conformance/test_simulated_ledger.py")
NO_RELAY = _tests("real MariaDB, no relay", "tests/integration/store/test_relay_watch.py")
ACCOUNT = _tests("real MariaDB, its account", "tests/integration/store/test_account.py")
OUTBOX = _tests("real MariaDB, outbox", "tests/integration/store/test_recording.py")
RELAY_ROUNDS = _tests("real MariaDB, relay", "tests/integration/relay/test_rounds.py")
UNSERVED_HOSTS = _tests("real MariaDB, hosts without a relay", "tests/integration/relay/test_unserved_hosts.py")
FAILING_RELAYS = _tests("real MariaDB, a relay that fails", "tests/integration/relay/test_failing_relays.py")
ACTIVITIES = _tests("real MariaDB, the session's activities", "tests/integration/activities/test_session.py")
FOREIGN_LOCKS = _tests("real MariaDB, rows locked by others", "tests/integration/ledger/test_foreign_locks.py")
ALERTS = _tests(
    "real MariaDB, alerts", "tests/integration/store/test_alerts.py", "tests/integration/store/test_alert_life.py"
)
ENDED_WORKERS = _tests(
    "real MariaDB, workers that ended",
    "tests/integration/store/test_worker_locks.py",
    "tests/integration/store/test_worker_watch.py",
    "tests/integration/store/test_worker_presence.py",
)
CONSEQUENCES = _tests("real MariaDB, what a resolve does", "tests/integration/store/test_halt_consequences.py")
RECOVERY = _tests("real MariaDB, recovery", "tests/integration/session/test_recovery.py")
USED_NONCE = _tests("unit tests of used nonces", "tests/unit/store/test_used_nonce.py")
APART = _tests("real MariaDB, operations set apart", "tests/integration/session/test_set_apart.py")
UNLISTED = _tests("real MariaDB, unlisted answers", "tests/integration/session/test_unlisted_answers.py")
FENCING = _tests("real MariaDB, zombies and slow marks", "tests/integration/session/test_fencing.py")
LEASES = _tests("real MariaDB, leases", "tests/integration/relay/test_shared_poll.py")
GIVING_WAY = _tests("real MariaDB, sends that give way", "tests/integration/session/test_giving_way.py")
OVERDUE = _tests("real MariaDB, replies that never come", "tests/integration/session/test_reply_timeout.py")
CLUSTER = _tests("three real MariaDBs, a cluster", "tests/integration/ledger/test_cluster.py")
SIGNALS = _tests(
    "real Temporal, signals left unread", "tests/workflows/test_submissions.py", "tests/workflows/test_starts.py"
)
STARTS = _tests("real Temporal, starts of the writer", "tests/workflows/test_starts.py", "-k", "numbered")
HEALTH = _tests("real Temporal, the writer's health", "tests/integration/relay/test_writer_health.py")
RESETS = _tests(
    "real Temporal, runs that were reset", "tests/faults/test_signals_unread.py", "-k", "nobody_had_started"
)
LEAVING = _tests("real Temporal, the last task of a run", "tests/workflows/test_submissions.py", "-k", "may_end")
HALT_DECISIONS = _tests("real MariaDB, decisions about halts", "tests/integration/store/test_halt_decision.py")
BY_HAND = _tests("real Temporal, activities ended by hand", "tests/workflows/test_ended_by_hand.py")
