"""The session's activities as a worker holds them, on a real OldHost and a real ledger."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event
from sqlalchemy.engine import Connection

from activities.session import NOT_HERE, PAUSED_MS, SessionActivities
from oldhost_simulator.admin import Controls
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.drivers.mapping import OLDHOST, Code, HostMapping
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.answer_times import KNOWN_AFTER
from oldhost_sync.oldhost.connector import Connector, SockAddress
from oldhost_sync.oldhost.ledger import Ledger
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.actions import CloseSession, OpenSession, Probe, Send
from oldhost_sync.policy.machine.events import OpeningPostponed, OpeningResult, SendEnded, SessionOpened
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.read.halt import read_halt
from oldhost_sync.store.read.sessions import read_sessions
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.telemetry import WorkerMetrics
from tests.called_by_writer import called_by_writer
from tests.conformance.mappings import install
from tests.conformance.maria_world import HOST, MariaWorld
from tests.conformance.offered_code import forget
from tests.foreign_host.host import ForeignHost
from tests.integration.relay.listening import statements
from tests.integration.store.writing import wait_until

pytestmark = pytest.mark.mariadb


@pytest.fixture
def oldhost() -> Iterator[Simulator]:
    with Simulator(Config(latency_ms=0, first_nonce=501)) as simulator:
        yield simulator


def worker(world: MariaWorld, oldhost: Simulator, name: str) -> SessionActivities:
    limits = SessionLimits(reconnect_seconds_max=2.0, connect_pause_seconds=0.02, look_up_seconds=0.02)
    return SessionActivities(
        engine=world.engine,
        connect_to=lambda _, clock: Connector(Address(oldhost.config.host, oldhost.port), HTTP, clock),
        task_queue=f"queue-{name}",
        owner=name,
        limits=lambda _: limits,
        metrics=WorkerMetrics(CollectorRegistry()),
    )


def open_session(sessions: SessionActivities, *in_doubt: int) -> OpeningResult:
    return called_by_writer().run(sessions.open_session, OpenSession(in_doubt))


def send(sessions: SessionActivities, epoch: int, *change_ids: int) -> SendEnded:
    return called_by_writer().run(sessions.send, Send(1, 0, epoch, change_ids))


def test_heartbeats_leave_three_seconds_after_the_start_and_then_every_three_and_a_half(
    world: MariaWorld, oldhost: Simulator
) -> None:
    """Each costs an action, and the timeout of six seconds runs from the start or from the last one."""
    clock = iter((0.0, 2.9, 3.0, 6.4, 6.5))
    beats: list[object] = []
    sessions = worker(world, oldhost, "a")
    sessions.clock = lambda: next(clock)
    environment = called_by_writer()
    environment.on_heartbeat = lambda *_: beats.append(None)

    def work() -> list[int]:
        beat = sessions._heartbeat()
        found = []
        for _ in range(4):
            beat()
            found.append(len(beats))
        return found

    assert environment.run(work) == [0, 1, 1, 2]


def test_a_session_is_opened_spoken_to_and_closed(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    answer = open_session(sessions)
    assert answer == SessionOpened(1, "queue-a", 501)
    report = send(sessions, 1, world.record("u1"), world.record("u2"))
    assert [fate.outcome for fate in report.fates] == ["APPLIED", "APPLIED"]
    probed = called_by_writer().run(sessions.probe, Probe(1))
    assert (probed.session_open, probed.expected_nonce) == (True, 503)
    called_by_writer().run(sessions.close_session, CloseSession(1))
    assert not send(sessions, 1, world.record("u3")).session_open


def test_a_stale_task_is_refused(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    open_session(sessions)
    change_id = world.record()
    report = send(sessions, 1, change_id)
    assert (report.session_open, report.reason) == (False, NOT_HERE)
    assert [fate.outcome for fate in report.fates] == ["WAITING"]
    assert [fate.outcome for fate in send(sessions, 2, change_id).fates] == ["APPLIED"]


def test_what_one_session_learnt_of_the_host_s_answers_the_next_one_knows(
    world: MariaWorld, oldhost: Simulator
) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    send(sessions, 1, *(world.record(f"u{number}") for number in range(KNOWN_AFTER)))
    open_session(sessions)
    oldhost.control(lambda controls: controls.switch_on({"name": "swallow", "next": 1}))
    assert "longer than its answers take" in send(sessions, 2, world.record()).reason


def test_a_lost_reply_and_the_wait_for_the_settle_time_are_counted(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    oldhost.control(lambda controls: controls.switch_on({"name": "drop_before", "next": 1}))
    send(sessions, 1, world.record())
    postponed = open_session(sessions)
    assert isinstance(postponed, OpeningPostponed)
    assert postponed.reason == "settle"
    assert sessions.metrics.lost_replies.labels(HOST)._value.get() == 1
    assert sessions.metrics.settle_seconds.labels(HOST)._value.get() == postponed.wait_ms / 1000 > 0


def test_opening_tells_the_fate_of_what_was_in_doubt(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    done, waiting = world.record("u1"), world.record("u2")
    send(sessions, 1, done)
    answer = open_session(sessions, done, waiting)
    assert isinstance(answer, SessionOpened)
    assert {fate.change_id: fate.outcome for fate in answer.fates} == {done: "APPLIED", waiting: "WAITING"}


def test_a_drained_worker_gives_the_connection_up_and_opens_nothing_more(world: MariaWorld, oldhost: Simulator) -> None:
    first, second = worker(world, oldhost, "a"), worker(world, oldhost, "b")
    open_session(first)
    first.drain()
    answer = open_session(first)
    assert answer == OpeningPostponed(1000, "leaving")
    assert open_session(second).state == "open"


def test_the_watch_lets_a_taken_over_worker_go(world: MariaWorld, oldhost: Simulator) -> None:
    """Like a process that was stopped, declared dead, and wakes up: it must not keep the connection."""
    zombie, successor = worker(world, oldhost, "a"), worker(world, oldhost, "b")
    open_session(zombie)
    watching = threading.Thread(target=zombie.watch)
    watching.start()
    try:
        answer = open_session(successor)
        while answer.state == "wait":
            answer = open_session(successor)
    finally:
        zombie.drain()
        watching.join()
    assert answer.state == "open"
    assert oldhost.control(Controls.stats)["gaps"] == 0


def test_the_watch_outlives_an_error_of_the_database_that_nobody_listed(
    world: MariaWorld, oldhost: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its table was missing for a while (1146); then the watch must still let a fenced connection go."""
    monkeypatch.setattr("activities.session.WATCH_SECONDS", 0.02)
    zombie, successor = worker(world, oldhost, "a"), worker(world, oldhost, "b")
    open_session(zombie)
    world.execute("RENAME TABLE nonce_ledger TO nonce_ledger_away")
    watching = threading.Thread(target=zombie.watch)
    watching.start()
    try:
        wait_until(lambda: "1146" in caplog.text, "a look to fail")
        world.execute("RENAME TABLE nonce_ledger_away TO nonce_ledger")
        answers = [open_session(successor).state for _ in range(3)]
    finally:
        zombie.drain()
        watching.join()
    assert "open" in answers


def test_a_session_leaves_a_host_that_lives_on_after_its_name_has_moved(
    world: MariaWorld, oldhost: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.session.WATCH_SECONDS", 0.02)
    monkeypatch.setattr("oldhost_sync.oldhost.connector.NAME_WATCH_SECONDS", 0.02)
    sessions = worker(world, oldhost, "a")
    with ForeignHost() as old, ForeignHost() as new:
        leads_to = [old]
        name = Address("oldhost.example", 8100)

        def find(name: str, port: int) -> list[SockAddress]:
            return [(socket.AF_INET, (leads_to[0].address, leads_to[0].port))]

        sessions._connectors[HOST] = Connector(name, HTTP, sessions.clock, find)
        open_session(sessions)
        watching = threading.Thread(target=sessions.watch)
        watching.start()
        try:
            wait_until(lambda: bool(sessions._connectors[HOST]._watch._found), "a look-up")
            assert sessions._session(HOST, 1) is not None
            leads_to[0] = new
            wait_until(lambda: sessions._session(HOST, 1) is None, "the end of the session")
            assert open_session(sessions).state == "open"
            send(sessions, 2, world.record("u1"))
        finally:
            sessions.drain()
            watching.join()
        assert (old.applied(), len(new.applied())) == ([], 1)
    assert sessions_told(world)[-1] == (1, "a", "the name of OldHost's address leads elsewhere now")


def test_a_halt_whose_cause_is_gone_by_the_hosts_own_count_says_so_and_one_decision_ends_it(
    world: MariaWorld, oldhost: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that said 1 for a while after its restart."""
    monkeypatch.setattr("activities.session.WATCH_SECONDS", 0.02)
    monkeypatch.setattr("activities.session.HALT_CHECK_SECONDS", 0.02)
    sessions = worker(world, oldhost, "a")
    with ForeignHost() as host:
        sessions._connectors[HOST] = Connector(Address(host.address, host.port), HTTP, sessions.clock)
        open_session(sessions)
        send(sessions, 1, world.record("u1"))
        sessions._end_here(HOST, "a restart", lambda: None)
        world.decide("halt")
        world.execute("UPDATE nonce_ledger SET halted = 'it went back', halted_expected_nonce = 1")
        host.says = 1
        watching = threading.Thread(target=sessions.watch)
        watching.start()
        try:
            wait_until(lambda: len(host.requests) >= 6, "questions")
            assert world.halted() == "it went back"
            host.says = None
            wait_until(lambda: "fits the ledger" in (world.halted() or ""), "the halt's text")
        finally:
            sessions.drain()
            watching.join()
    with world.engine.connect() as connection:
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert (halt.expected_nonce, halt.same) == (502, True)
    assert "what halted it is gone" in halt.conclusion
    assert halt.adopt.given_up == halt.resend.sent_again == 0


def test_no_session_is_opened_while_an_operator_s_pause_is_in_force(world: MariaWorld, oldhost: Simulator) -> None:
    """The writer may not know: where Temporal was restored from a backup, its pause is undone."""
    anna, sessions = at_the_terminal("anna"), worker(world, oldhost, "a")
    act = partial(record_act, host=HOST, operator=anna, reason="maintenance")
    run_in_transaction(world.engine, partial(act, action="pause"))
    postponed = open_session(sessions)
    assert isinstance(postponed, OpeningPostponed)
    assert (postponed.reason, postponed.message) == ("pause", "by anna: maintenance")
    run_in_transaction(world.engine, partial(act, action="resume"))
    assert isinstance(open_session(sessions), SessionOpened)
    sessions.drain()


def test_a_worker_that_found_it_lacks_a_hosts_code_opens_no_further_session(
    world: MariaWorld, oldhost: Simulator
) -> None:
    sessions = worker(world, oldhost, "a")
    install(world.engine, HostMapping("tax", "1", {"*": Code("nowhere", "tax 1.2")}))
    why = "mapping tax/1 needs the entry point nowhere, and no package here has it"
    waiting = world.record("u1", "unit_status_changed", {"status": "Clean"})
    forget()
    opened = open_session(sessions)
    assert isinstance(opened, SessionOpened)
    assert why in send(sessions, opened.epoch, waiting).reason
    assert open_session(sessions) == OpeningPostponed(PAUSED_MS, "mapping", why)
    install(world.engine, OLDHOST)
    assert isinstance(open_session(sessions), SessionOpened)
    sessions.drain()


def test_a_locked_ledger_is_the_reason_that_an_opening_gives_after_one_wait(
    world: MariaWorld, oldhost: Simulator
) -> None:
    """Five waits would outlast its heartbeat, and nobody would hear of the lock."""

    def wait_for_nothing(connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 0")

    sessions = worker(world, oldhost, "a")
    assert isinstance(open_session(sessions), SessionOpened)
    event.listen(world.engine, "begin", wait_for_nothing)
    with world.engine.connect() as holder:
        holder.exec_driver_sql("SELECT * FROM nonce_ledger FOR UPDATE")
        with statements(world.engine) as asked:
            postponed = open_session(sessions)
    sessions.drain()
    assert isinstance(postponed, OpeningPostponed)
    assert (postponed.reason, "lock wait timeout (MariaDB 1205)" in postponed.message) == ("database", True)
    assert len([each for each in asked if each.startswith(("INSERT INTO nonce_ledger", "UPDATE nonce_ledger"))]) == 1


def test_an_unknown_host_is_an_error_that_says_so() -> None:
    from oldhost_sync.roles.worker import connectors
    from oldhost_sync.settings import SettingsError, load_settings

    connect_to = connectors(load_settings(oldhost_url="http://10.0.0.7:8100", host="annex"))
    assert connect_to("annex", time.monotonic)._address == Address("10.0.0.7", 8100, "10.0.0.7:8100")
    with pytest.raises(SettingsError, match="no address is set"):
        connect_to("elsewhere", time.monotonic)


def test_an_ipv6_address_is_connected_to_without_its_brackets_and_named_with_them() -> None:
    from oldhost_sync.roles.worker import connectors
    from oldhost_sync.settings import load_settings

    connect_to = connectors(load_settings(oldhost_url="http://[::1]:8100"))
    assert connect_to("oldhost", time.monotonic)._address == Address("::1", 8100, "[::1]:8100")


def sessions_told(world: MariaWorld) -> list[tuple[int, str | None, str | None]]:
    with world.engine.connect() as connection:
        return [(each.epoch, each.owner, each.ended_because) for each in read_sessions(connection, HOST).sessions]


def test_a_worker_that_leaves_tells_of_its_session_and_why_it_ended(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    sessions.drain()
    assert sessions_told(world) == [(1, "a", "this worker is leaving")]


def test_a_session_that_lost_a_reply_tells_so(world: MariaWorld, oldhost: Simulator) -> None:
    sessions = worker(world, oldhost, "a")
    open_session(sessions)
    oldhost.control(lambda controls: controls.switch_on({"name": "drop_before", "next": 1}))
    send(sessions, 1, world.record("u1"))
    sessions.drain()
    ((_, _, because),) = sessions_told(world)
    assert because != "this worker is leaving"
    with world.engine.connect() as connection:
        assert read_sessions(connection, HOST).lost_replies_of_a_day == 1


def test_until_it_is_drained_a_worker_that_opens_no_more_looks_after_its_session(
    world: MariaWorld, oldhost: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may take long to take over, and a connection that was taken over must be let go meanwhile too."""
    monkeypatch.setattr("activities.session.WATCH_SECONDS", 0.02)
    leaving, successor = worker(world, oldhost, "a"), worker(world, oldhost, "b")
    open_session(leaving)
    leaving.open_no_more()
    watching = threading.Thread(target=leaving.watch)
    watching.start()
    try:
        answers = [open_session(successor).state for _ in range(3)]
    finally:
        leaving.drain()
        watching.join()
    assert "open" in answers


def test_a_session_that_was_opened_while_its_worker_was_drained_is_given_up(
    world: MariaWorld, oldhost: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, successor = worker(world, oldhost, "a"), worker(world, oldhost, "b")

    ledger = SessionActivities.ledger

    def ledger_of(sessions: SessionActivities, host: str) -> Ledger:  # the opening asks for it first of all
        monkeypatch.undo()
        leaving.drain()
        return ledger(sessions, host)

    monkeypatch.setattr(SessionActivities, "ledger", ledger_of)
    assert open_session(leaving) == OpeningPostponed(1000, "leaving")
    assert open_session(successor).state == "open"
    assert sessions_told(world) == [(1, "a", "this worker is leaving")]
