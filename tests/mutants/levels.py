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
UNIT = _tests("unit tests", "tests/unit/policy", "tests/unit/oldhost", "tests/unit/drivers")
DRIVERS = _tests(
    "unit tests of drivers",
    "tests/unit/drivers",
    "tests/unit/oldhost/test_connection.py",
    "tests/unit/oldhost/test_driven_connection.py",
    "tests/unit/test_driver_choice.py",
)
DRIVER_KIT = _tests("the driver kit", "tests/unit/driver_kit")
RELEASES = _tests("unit tests of releases", "tests/unit/policy/test_release.py", "tests/unit/worker")
WATCHES = _tests("unit tests of the relay", "tests/unit/relay", "tests/unit/temporal")
PAUSE_END = _tests("unit tests of a pause's end", "tests/unit/policy/test_pause_end.py")
RECORDS = _tests("real MariaDB, what the writer records", "tests/integration/activities/test_records.py", "-k", "pause")
DELIVERY = _tests("unit tests of the delivery", "tests/unit/test_delivery.py")
FATE_WEBHOOKS = _tests(
    "fates to webhooks", "tests/unit/test_fate_webhooks.py", "tests/integration/relay/test_fate_webhooks.py"
)
STACK = _tests("unit tests of the stack", "tests/unit/stack")
CONFORMANCE = _tests("ledger conformance", "tests/conformance/test_simulated_ledger.py")
TEST_KIT = _tests("the applications' test kit", "tests/unit/testing")
DOORS_OF_PAGES = _tests(
    "who gets in", "tests/integration/api/test_access.py", "tests/integration/console/test_sign_in.py"
)
CONDITIONS = _tests("unit tests of conditions", "tests/unit/policy/test_conditions.py")
NO_RELAY = _tests("real MariaDB, no relay", "tests/integration/store/test_relay_watch.py")
DEADLOCKS = _tests("real MariaDB, deadlocks", "tests/integration/store/test_mariadb_facts.py", "-k", "deadlock")
PACKETS = _tests(
    "real MariaDB, packets",
    "tests/integration/store/test_packet.py",
    "tests/faults/test_mariadb_faults.py",
    "-k",
    "packet",
)
ACCOUNT = _tests("real MariaDB, its account", "tests/integration/store/test_account.py")
OUTBOX = _tests("real MariaDB, outbox", "tests/integration/store/test_recording.py")
QUIET_HOURS = _tests("real MariaDB, quiet hours", "tests/integration/relay/test_quiet_hours.py")
RELAY_ROUNDS = _tests("real MariaDB, relay", "tests/integration/relay/test_rounds.py")
UNSERVED_HOSTS = _tests("real MariaDB, hosts without a relay", "tests/integration/relay/test_unserved_hosts.py")
FAILING_RELAYS = _tests("real MariaDB, a relay that fails", "tests/integration/relay/test_failing_relays.py")
ACTIVITIES = _tests("real MariaDB, the session's activities", "tests/integration/activities/test_session.py")
FOREIGN_LOCKS = _tests("real MariaDB, rows locked by others", "tests/integration/ledger/test_foreign_locks.py")
WITHDRAWALS = _tests("real MariaDB, withdrawals", "tests/integration/ledger/test_withdrawals.py")
WITHDRAWALS_BY_HTTP = _tests("withdrawals by HTTP", "tests/integration/api/test_withdrawals.py")
ALERTS = _tests(
    "real MariaDB, alerts",
    "tests/integration/store/test_alerts.py",
    "tests/integration/store/test_alert_life.py",
    "tests/integration/activities/test_conditions.py",
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
MAPPINGS = _tests(
    "real MariaDB, mappings", "tests/integration/session/test_mappings.py", "tests/integration/store/test_mappings.py"
)
HOSTS_FILE = _tests("unit tests of the hosts file", "tests/unit/test_hosts_file.py")
REFUSALS_UNIT = _tests("unit tests of refusals", "tests/unit/oldhost/test_refusal.py")
NUMBERING_UNIT = _tests("unit tests of numbering", "tests/unit/oldhost/test_numbers.py")
KINDS_OF_HOST = _tests("every kind of host", "tests/integration/session/test_kinds_of_host.py")
UNLISTED = _tests("real MariaDB, unlisted answers", "tests/integration/session/test_unlisted_answers.py")
FENCING = _tests("real MariaDB, zombies and slow marks", "tests/integration/session/test_fencing.py")
LEASES = _tests("real MariaDB, leases", "tests/integration/relay/test_shared_poll.py")
GIVING_WAY = _tests("real MariaDB, sends that give way", "tests/integration/session/test_giving_way.py")
MARK_TIME = _tests("real MariaDB, what is done while OldHost works", "tests/integration/session/test_mark_time.py")
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
PACE = _tests(
    "unit tests of how connections begin and end",
    "tests/unit/oldhost/test_connection_pace.py",
    "tests/unit/oldhost/test_connection_end.py",
)
ANSWER_HEADERS = _tests("unit tests of headers", "tests/unit/drivers/test_retry_after.py")
ADDRESSES = _tests("hosts of another make, their addresses", "tests/unit/oldhost/test_connector.py")
REFUSING_HOSTS = _tests("unit tests of hosts that refuse", "tests/unit/policy/test_refusing_hosts.py")
SETTINGS = _tests("unit tests of the settings", "tests/unit/test_settings.py")
FOREIGN_HOST = _tests("real MariaDB, a host of another make", "tests/integration/session/test_foreign_host.py")
RESOLVES = _tests("real MariaDB, resolves", "tests/integration/session/test_resolves.py", "-k", "fits")
HALTED_COUNT = _tests(
    "real MariaDB, a halted host's count", "tests/integration/activities/test_session.py", "-k", "cause_is_gone"
)
MOVED_NAME = _tests("real MariaDB, a name that moves", "tests/integration/activities/test_session.py", "-k", "name")
CALLERS = _tests("real MariaDB, callers' transactions", "tests/integration/store/test_callers_transaction.py")
CALLERS_ERRORS = _tests("real MariaDB, callers' errors", "tests/integration/store/test_callers_errors.py")
PROCEDURE = _tests("real MariaDB, the stored procedure", "tests/integration/store/test_procedure.py")
RECORDING_DRIVERS = _tests(
    "real MariaDB, any driver", "tests/integration/store/test_callers_errors.py", "-k", "autocommit"
)
BODIES = _tests("unit tests of bodies", "tests/unit/api/test_bodies.py")
DOORS = _tests("real MariaDB, one table of forms at each door", "tests/integration/api/test_doors.py")
ODD_QUERIES = _tests("real MariaDB, odd queries", "tests/integration/api/test_odd_queries.py")
SYSTEM_DOORS = _tests("real servers, forms in updates and signals", "tests/integration/system/test_doors.py")
OFFERS = _tests("real MariaDB, what clients offer", "tests/integration/api/test_offers.py")
FEED = _tests("real MariaDB, the feed", "tests/integration/api/test_feed.py")
STATE_SIZE = _tests("real MariaDB, large states", "tests/integration/api/test_state_size.py")
SITUATION = _tests(
    "unit tests of the situation", "tests/unit/api/test_situation.py", "tests/unit/api/test_situation_reader.py"
)
FULL_DISK = _tests(
    "real MariaDB, writes that it refuses",
    "tests/unit/api/test_last_refusal.py",
    "tests/integration/api/test_refused_writes.py",
)
STALLS = _tests(
    "real MariaDB, readers that stall", "tests/unit/api/test_metrics.py", "tests/integration/api/test_stalls.py"
)
LIVE_PAGES = _tests(
    "real MariaDB, live pages", "tests/unit/console/test_live_stream.py", "tests/integration/console/test_live.py"
)
CODEC = _tests("real MariaDB, payloads for Temporal's UI", "tests/integration/console/test_codec.py")
WORDS = _tests("real MariaDB, OldHost's words", "tests/integration/console/test_words.py")
ONE_JUDGEMENT = _tests("real MariaDB, a host's state", "tests/integration/console/test_one_judgement.py")
PLAIN_TEXT = _tests("unit tests of plain text", "tests/unit/policy/test_plain_text.py")
WIRE = _tests("unit tests of the wire", "tests/unit/drivers/test_oldhost_protocol.py")
FIELDS = _tests("unit tests of fields", "tests/unit/fields")
SIGN_IN = _tests("real MariaDB, sign-ins", "tests/integration/console/test_sign_in.py")
WATCHED_FILE = _tests("unit tests of watched files", "tests/unit/test_watched_file.py", "tests/unit/api/test_tokens.py")
HOST_CONDITION = _tests("real MariaDB, a host's condition", "tests/integration/store/test_host_condition.py")
APART_UNIT = _tests("unit tests of what waits apart", "tests/unit/policy/test_apart.py")
WIRE_UNIT = _tests(
    "unit tests of the wire", "tests/unit/drivers/test_oldhost_protocol.py", "tests/unit/oldhost/test_first_contact.py"
)
LOST_ANSWER = _tests("real servers, a lost answer", "tests/integration/system/test_lost_answer.py")
SETTLEMENT = _tests("real MariaDB, settled days", "tests/integration/settlement/test_day_settlement.py")
FAR_WORKERS = _tests("real MariaDB, far away", "tests/integration/relay/test_host_watch.py", "-k", "far")
QUEUES = _tests(
    "real Temporal, other deployments", "tests/integration/relay/test_writer_health.py", "-k", "deployments"
)
VALIDATORS_UNIT = _tests("unit tests of validators", "tests/unit/workflows/test_validators.py")
APART_PAUSES = _tests("unit tests of pauses apart", "tests/unit/store/test_pauses.py")
TLS = _tests("real sockets, TLS", "tests/integration/session/test_tls.py")
HTTP_OPTIONS = _tests("unit tests of HTTP options", "tests/unit/drivers/test_http_options.py")
MAPPING_UNIT = _tests("unit tests of mappings", "tests/unit/drivers/test_mapping.py")
UNITS_HOST = _tests("real sockets, a host with an API of its own", "tests/integration/session/test_units_host.py")
PROXY = _tests("real sockets, a proxy", "tests/integration/session/test_proxy.py")
SECRETS = _tests("real sockets, secrets", "tests/integration/session/test_secrets.py")
EXPECTED = _tests("unit tests of expected arrivals", "tests/unit/api/test_expected_arrival.py")
FATE_STREAMS = _tests(
    "real MariaDB, streams of fates", "tests/unit/api/test_fate_streams.py", "tests/integration/api/test_events.py"
)
BATCH_PROGRESS = _tests("real MariaDB, how far a batch is", "tests/integration/api/test_batches.py", "-k", "how_far")
