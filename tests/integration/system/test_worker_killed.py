"""A worker that is killed, stopped or told to leave at an exact point: nothing is lost, nothing is sent twice."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from oldhost_sync.temporal.writer_health import describe_writer
from tests.faults.database_proxy import Action, DatabaseProxy
from tests.faults.product import Product
from tests.integration.system.changes import record
from workflows.messages import workflow_id

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

# Each is one packet with its COMMIT.
MARKS_SENT = r"UPDATE nonce_requests SET status = 'SENT'"
RECORDS_ANSWER = r"UPDATE nonce_ledger SET last_applied_nonce"
# The promise: worker killed → next operation on the wire.
TAKEOVER_SECONDS_MAX = 15.0
# A stopped worker's polls wait on: Temporal gives them two workflow tasks (10 s each), a probe and an opening (6 s
# each). Then comes the settle time.
STOPPED_SECONDS_MAX = 45.0


def begin(product: Product, proxy: DatabaseProxy) -> None:
    """One worker behind the proxy has applied a first change and waits for more."""
    product.start("relay")
    product.start_worker("first", database_url=proxy.url(product.database.app))
    record(product, 1, entity="warm")
    product.wait_for("the first change", lambda: product.all_have_fates(1))


def finish(product: Product, count: int) -> None:
    product.wait_for("all fates", lambda: product.all_have_fates(count))
    product.check_clean()
    assert set(product.fates().values()) == {"APPLIED"}
    assert product.requests("SENT") == product.requests("RESERVED") == []


def kill_and_take_over(product: Product, already_applied: int) -> None:
    product.start_worker("second")
    killed_at = time.time()
    product.children["first"].kill()
    product.wait_for("the next operation", lambda: len(product.journal()) > already_applied, TAKEOVER_SECONDS_MAX)
    assert product.journal()[already_applied]["received_at"] - killed_at <= TAKEOVER_SECONDS_MAX


def test_killed_after_reserved_the_nonces_are_free_again(product: Product, proxy: DatabaseProxy) -> None:
    begin(product, proxy)
    trap = proxy.set_trap(Action.HOLD_STATEMENT, MARKS_SENT)
    record(product, 5)
    trap.wait()
    assert len(product.requests("RESERVED")) >= 1
    assert product.requests("SENT") == []
    kill_and_take_over(product, already_applied=1)
    finish(product, 6)


def test_killed_after_sent_before_the_first_byte_the_same_operation_goes_after_the_settle_time(
    product: Product, proxy: DatabaseProxy
) -> None:
    begin(product, proxy)
    trap = proxy.set_trap(Action.HOLD_ANSWER, MARKS_SENT)
    record(product, 5)
    trap.wait()
    (sent,) = product.requests("SENT")
    marked_at = time.time()
    kill_and_take_over(product, already_applied=1)
    finish(product, 6)
    again = product.journal()[1]
    assert (again["nonce"], again["body"]["event_id"]) == (sent["nonce"], sent["change_id"])
    assert again["received_at"] - marked_at >= product.settings.settle_seconds - 0.5


def test_killed_after_the_reply_before_it_is_recorded_it_is_found_applied(
    product: Product, proxy: DatabaseProxy
) -> None:
    begin(product, proxy)
    trap = proxy.set_trap(Action.HOLD_STATEMENT, RECORDS_ANSWER)
    record(product, 5)
    trap.wait()
    product.wait_for("the reply", lambda: len(product.journal()) >= 2)
    kill_and_take_over(product, already_applied=len(product.journal()))
    finish(product, 6)
    found = product.sql("SELECT nonce FROM nonce_requests WHERE answer LIKE 'unconfirmed%%'")
    assert [row["nonce"] for row in found][:1] == [2]


def test_killed_with_the_operation_on_the_wire_it_is_not_sent_again(product: Product, proxy: DatabaseProxy) -> None:
    begin(product, proxy)
    product.fault("hang", next=1, seconds=1.5, applied=True)
    record(product, 3)
    product.wait_for("an operation on the wire", lambda: product.requests("SENT"))
    kill_and_take_over(product, already_applied=1)
    finish(product, 4)


def ended_by_timeout(product: Product) -> list[str]:
    """The tasks of the writer's runs that Temporal gave up."""

    async def read(client: Client) -> list[str]:
        handle = client.get_workflow_handle(workflow_id(product.host))
        kinds = [EventType.Name(event.event_type) async for event in handle.fetch_history_events()]
        return [kind for kind in kinds if "TIMED_OUT" in kind]

    return product.ask(read)


def until_idle(product: Product) -> None:
    """Until no workflow task is at a worker: one that is killed within a task costs its timeout, 10 s."""

    async def is_idle(client: Client) -> bool:
        described = await describe_writer(client, product.host)
        return described is not None and not described.HasField("pending_workflow_task")

    product.wait_for("a writer without a task", lambda: product.ask(is_idle))


def until_watching(product: Product, workers: int) -> None:
    """Until so many workers wait for the lock of another one."""
    waits = "SELECT id FROM information_schema.processlist WHERE state = 'User lock'"
    product.wait_for("workers that watch each other", lambda: len(product.sql(waits)) == workers)


@pytest.mark.parametrize("told", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to leave"])
def test_an_idle_worker_that_ends_is_replaced_without_waiting_for_a_timeout(
    product: Product, told: signal.Signals
) -> None:
    product.start("relay")
    product.start_worker("first")
    product.start_worker("second")
    record(product, 1, entity="warm")
    product.wait_for("the first change", lambda: product.all_have_fates(1))
    ends = holder(product)
    until_watching(product, 2)
    until_idle(product)
    product.children[ends].send_signal(told)
    product.wait_for("another's session", lambda: product.status()["session"]["epoch"] == 2)
    record(product, 3)
    finish(product, 4)
    assert ended_by_timeout(product) == []


def test_of_two_workers_one_holds_the_connection(product: Product) -> None:
    product.start("relay")
    product.start_worker("first")
    product.start_worker("second")
    for round_ in range(3):
        record(product, 10, entity=f"round{round_}-")
    finish(product, 30)
    assert product.stats()["connections"] == 1
    assert len({row["epoch"] for row in product.requests("APPLIED")}) == 1


def test_trap_03_a_worker_stopped_for_longer_than_the_settle_time_is_fenced_when_it_wakes(product: Product) -> None:
    product.start("relay")
    zombie = product.start_worker("first")
    record(product, 1, entity="warm")
    product.wait_for("the first change", lambda: product.all_have_fates(1))
    product.start_worker("second")
    epoch = product.requests("APPLIED")[0]["epoch"]
    product.fault("slow", next=1, extra_ms=300)
    record(product, 20)
    product.wait_for("an operation on the wire", lambda: product.requests("SENT"))
    zombie.send_signal(signal.SIGSTOP)
    # The zombie's kernel keeps the connection open: only OldHost or its network can end it.
    product.admin("POST", "/actions/close-connection", {})
    product.wait_for("the successor's work", lambda: len(product.applied()) >= 10, STOPPED_SECONDS_MAX)
    record(product, 20, entity="late")
    zombie.send_signal(signal.SIGCONT)
    finish(product, 41)
    last = product.sql("SELECT MAX(epoch) AS epoch FROM nonce_requests")[0]["epoch"]
    assert last > epoch
    assert zombie.running
    product.wait_for("one holder", lambda: connected(product) == [holder(product)])


def test_worker_that_wakes_with_the_only_connection_lets_go_of_it_when_it_is_fenced(product: Product) -> None:
    product.start("relay")
    zombie = product.start_worker("first")
    record(product, 1, entity="warm")
    product.wait_for("the first change", lambda: product.all_have_fates(1))
    product.start_worker("second")
    zombie.send_signal(signal.SIGSTOP)
    record(product, 5)
    product.wait_for(
        "a successor that OldHost turns away", lambda: product.stats()["refused_connections"] > 0, STOPPED_SECONDS_MAX
    )
    assert connected(product) == ["first"]
    assert len(product.applied()) == 1
    zombie.send_signal(signal.SIGCONT)
    finish(product, 6)
    assert zombie.running
    product.wait_for("one holder", lambda: connected(product) == [holder(product)])


def connected(product: Product) -> list[str]:
    """The workers that have a connection to OldHost, as the kernel sees it."""
    return [name for name in ("first", "second") if _has_connection(product.children[name].pid, product.oldhost_port)]


def holder(product: Product) -> str:
    """The worker that took the host over last, by the ledger."""
    owner = product.sql("SELECT owner FROM nonce_ledger")[0]["owner"]
    (name,) = [name for name in ("first", "second") if f"worker {owner} is at work" in product.children[name].said()]
    return name


def _has_connection(pid: int, port: int) -> bool:
    """Whether one of the process's sockets is an established connection to `port`."""
    own = {str(link.readlink()) for link in Path("/proc", str(pid), "fd").iterdir() if link.is_symlink()}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, *_, inode = line.split()[:10]
        if state == "01" and int(remote.rpartition(":")[2], 16) == port and f"socket:[{inode}]" in own:
            return True
    return False


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP], ids=["told to leave", "its terminal closed"])
def test_a_worker_that_is_stopped_drains_and_leaves_nothing_in_doubt(product: Product, told: signal.Signals) -> None:
    product.start("relay")
    leaving = product.start_worker("first")
    record(product, 60)
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)
    leaving.send_signal(told)
    assert leaving.wait(20) == 0, leaving.last_lines()
    assert product.requests("SENT") == []
    product.start_worker("second")
    finish(product, 60)
    assert not product.sql("SELECT nonce FROM nonce_requests WHERE sends > 1 OR answer LIKE 'found%%'")
