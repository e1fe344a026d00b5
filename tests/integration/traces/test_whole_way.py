"""One change, one trace: from the request to the fate, made by API, relay and worker, each for itself.

All share one list of spans here; in production each has its own way to the collector. Nothing is handed from one to the
other but what the product hands on anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine

from activities.session import SessionActivities
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.api.app import create_app
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.actions import OpenSession, Send
from oldhost_sync.policy.machine.events import OpeningPostponed, SendEnded, SessionOpened
from oldhost_sync.relay.duty import RelayPace
from oldhost_sync.relay.fates import FateTracer
from oldhost_sync.relay.relay import Relay
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.telemetry import WorkerMetrics
from oldhost_sync.traces.change_spans import whole
from oldhost_sync.traces.span import ChangeTrace, Kind, Link, Span, SpanAddress
from tests.called_by_writer import called_by_writer
from tests.conformance.maria_world import HOST, MariaWorld
from tests.integration.api.conftest import TOKENS, ScriptedWriter, a_client, served
from tests.integration.relay.listening import Listener
from tests.monitoring.kept_spans import KeptSpans

pytestmark = pytest.mark.mariadb

CALLER = SpanAddress(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
TRACEPARENT = f"00-{CALLER.trace_id:032x}-{CALLER.span_id:016x}-01"
SECRET, KEY = "Ada Lovelace", "key-of-the-application"


@dataclass
class Way:
    """The product in one process, with a list for a writer."""

    engine: Engine
    oldhost: Simulator
    client: httpx.Client
    kept: KeptSpans
    ratio: float = 1.0
    world: MariaWorld = field(init=False)
    sessions: SessionActivities = field(init=False)

    def __post_init__(self) -> None:
        self.world = MariaWorld(self.engine, 3.0)
        tracer = self.kept.tracer(self.ratio)
        self.transactions = Transactions(self.engine)
        self.relay = Relay(self.transactions, Listener(), HOST, owner="one", pace=RelayPace(), tracer=tracer)
        self.fates = FateTracer(self.transactions, {HOST: self.relay.leadership}, "one", tracer)
        self.sessions = SessionActivities(
            engine=self.engine,
            connect_to=lambda _, clock: Connector(Address(self.oldhost.config.host, self.oldhost.port), HTTP, clock),
            task_queue="queue",
            owner="a",
            limits=lambda _: SessionLimits(
                look_up_seconds=0.02, busy_pause_seconds_min=0.01, busy_pause_seconds_max=0.02
            ),
            metrics=WorkerMetrics(CollectorRegistry()),
            tracer=tracer,
        )
        self.epoch = 0
        self.now = 0.0

    def post(self, unit: str, event_type: str, payload: Any, **headers: str) -> int:
        body = {"entity_type": "unit", "entity_id": unit, "event_type": event_type, "payload": payload}
        answer = self.client.post("/api/changes", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        self.spans_are_made()
        return int(answer.json()["change_id"])

    def spans_are_made(self) -> None:
        """A request's spans are made after its answer, and before the API's loop turns to the next one."""
        self.client.get("/healthz")

    def hand_over(self) -> None:
        self.now += 10
        asyncio.run(self.relay.run_once(self.now))

    def send(self, *change_ids: int) -> SendEnded:
        if not self.epoch:
            self.epoch = self.open().epoch
        accepted = [self.world.accepted_at_ms(change_id) for change_id in change_ids]
        request = Send(1, 0, self.epoch, change_ids, tuple(accepted))
        return called_by_writer().run(self.sessions.send, request)

    def open(self, *in_doubt: int) -> SessionOpened:
        """The settle time passes at once."""
        request = OpenSession(in_doubt)
        opened = called_by_writer().run(self.sessions.open_session, request)
        while isinstance(opened, OpeningPostponed) and opened.reason == "settle":
            self.world.age(opened.wait_ms / 1000)
            opened = called_by_writer().run(self.sessions.open_session, request)
        assert isinstance(opened, SessionOpened), opened
        return opened

    def trace_fates(self) -> None:
        asyncio.run(self._trace_fates())

    async def _trace_fates(self) -> None:
        await self.relay.leadership.hold(self.now)
        await self.fates.run_once(self.now)

    def trace_of(self, change_id: int) -> ChangeTrace:
        return ChangeTrace.of(HOST, change_id, self.world.accepted_at_ms(change_id))

    def spans(self, change_id: int) -> list[Span]:
        return self.kept.trace(self.trace_of(change_id))


@pytest.fixture
def kept() -> KeptSpans:
    return KeptSpans()


@pytest.fixture
def ratio() -> float:
    return 1.0


@pytest.fixture
def way(engine: Engine, database_url: str, kept: KeptSpans, ratio: float) -> Iterator[Way]:
    dependencies = Dependencies(
        HOST, TOKENS, Database(connect_for_api(database_url)), ScriptedWriter(), tracer=kept.tracer(ratio)
    )
    with (
        Simulator(Config(latency_ms=5, first_nonce=501)) as oldhost,
        served(create_app(dependencies)) as address,
        a_client(address, "shop") as client,
    ):
        way = Way(engine, oldhost, client, kept, ratio)
        yield way
        way.sessions.drain()
    assert kept.closed, "the API closes its tracer"


def test_one_change_gives_one_trace_with_its_steps_in_order(way: Way) -> None:
    change_id = way.post("u1", "booking_created", {"guest": SECRET}, **{"Idempotency-Key": KEY})
    way.hand_over()
    way.send(change_id)
    way.trace_fates()
    change, *parts = way.spans(change_id)
    assert [part.name for part in parts] == ["accept", "relay", "wait", "operation"]
    assert {part.parent for part in parts} == {change.address}
    assert (change.name, change.parent, change.address) == ("change", None, whole(way.trace_of(change_id)))
    assert change.attributes == {
        "sync.host": HOST,
        "sync.change_id": change_id,
        "sync.priority_class": "TXN",
        "sync.entity_type": "unit",
        "sync.entity_id": "u1",
        "sync.event_type": "booking_created",
        "sync.outcome": "APPLIED",
        "sync.nonce": 501,
    }
    assert [moment.name for moment in change.moments] == ["sent", "answered"]
    operation = parts[-1]
    told = {name: operation.attributes[f"sync.{name}"] for name in ("nonce", "epoch", "answer", "sent_before")}
    assert told == {"nonce": 501, "epoch": 1, "answer": "applied", "sent_before": 0}
    assert operation.attributes["temporalRunID"]
    assert (operation.kind, operation.error) == (Kind.CLIENT, "")
    assert all(span.begin_ns <= span.end_ns for span in (change, *parts))


def test_neither_payload_nor_key_is_in_any_span(way: Way) -> None:
    way.oldhost.control(lambda controls: controls.switch_on({"name": "reject", "next": 1, "reason": f"no {SECRET}"}))
    change_id = way.post("u1", "booking_created", {"guest": SECRET}, **{"Idempotency-Key": KEY})
    way.client.get(f"/api/changes/{KEY}", params={"what": SECRET})
    way.spans_are_made()
    way.hand_over()
    assert [fate.outcome for fate in way.send(change_id).fates] == ["DEAD"]
    way.trace_fates()
    assert {"POST /api/changes", "accept", "relay", "wait", "operation", "change"} <= {
        span.name for span in way.kept.spans
    }
    assert SECRET not in way.kept.said()
    assert KEY not in way.kept.said()
    assert way.spans(change_id)[0].error == "DEAD"


def test_a_change_that_an_application_recorded_itself_has_the_same_trace_but_for_the_request(way: Way) -> None:
    change_id = way.world.record("u1")
    way.send(change_id)
    way.trace_fates()
    assert [span.name for span in way.spans(change_id)] == ["change", "wait", "operation"]


def test_a_superseded_change_links_to_its_successor_and_that_one_back(way: Way) -> None:
    old, middle, new = (way.post("u1", "unit_status_changed", {"status": status}) for status in ("A", "B", "C"))
    way.hand_over()
    way.send(new)
    way.trace_fates()
    for change_id in (old, middle):
        change = way.spans(change_id)[0]
        assert (change.attributes["sync.outcome"], change.attributes["sync.superseded_by"]) == ("SUPERSEDED", new)
        assert change.links == (Link(whole(way.trace_of(new)), "superseded by"),)
        assert "operation" not in [span.name for span in way.spans(change_id)]
    back = [Link(whole(way.trace_of(change_id)), "supersedes") for change_id in (old, middle)]
    assert list(way.spans(new)[0].links) == back


def test_a_callers_trace_has_the_request_and_both_are_linked(way: Way) -> None:
    change_id = way.post("u1", "booking_created", {}, traceparent=TRACEPARENT)
    (request,) = way.kept.named("POST /api/changes")
    assert (request.address.trace_id, request.parent, request.kind) == (CALLER.trace_id, CALLER, Kind.SERVER)
    assert request.links == (Link(whole(way.trace_of(change_id)), "change"),)
    (accept,) = way.kept.named("accept")
    assert accept.links == (Link(request.address, "request"),)
    assert accept.parent == whole(way.trace_of(change_id))


def test_a_caller_that_does_not_record_has_no_span_of_its_request(way: Way) -> None:
    way.post("u1", "booking_created", {}, traceparent=TRACEPARENT.removesuffix("01") + "00")
    assert [span.name for span in way.kept.spans] == ["accept"]


def test_a_repeated_request_is_linked_and_does_not_accept_again(way: Way) -> None:
    first, again = (way.post("u1", "booking_created", {}, **{"Idempotency-Key": KEY}) for _ in range(2))
    assert first == again
    assert [len(span.links) for span in way.kept.named("POST /api/changes")] == [1, 1]
    assert len(way.kept.named("accept")) == 1


def test_each_change_of_a_batch_is_in_its_own_trace(way: Way) -> None:
    one = {"entity_type": "unit", "event_type": "booking_created", "payload": {}}
    changes = [{**one, "entity_id": f"u{number}"} for number in range(3)] + [{"entity_id": "nonsense"}]
    answer = way.client.post("/api/changes/batch", json={"changes": changes}).json()
    way.spans_are_made()
    ids = [result["change_id"] for result in answer["results"][:3]]
    assert [[span.name for span in way.spans(change_id)] for change_id in ids] == [["accept"]] * 3
    (request,) = way.kept.named("POST /api/changes/batch")
    assert [link.to for link in request.links] == [whole(way.trace_of(change_id)) for change_id in ids]


def test_who_is_not_known_leaves_no_span(way: Way) -> None:
    way.client.get("/api/units", headers={"Authorization": "Bearer nobody", "traceparent": TRACEPARENT})
    way.client.get("/healthz", headers={"traceparent": TRACEPARENT})
    way.spans_are_made()
    assert way.kept.spans == []


def test_each_time_on_the_wire_is_a_span_with_its_answer(way: Way) -> None:
    way.oldhost.control(lambda controls: controls.switch_on({"name": "busy", "next": 1}))
    change_id = way.post("u1", "booking_created", {})
    way.hand_over()
    way.send(change_id)
    answers = [(span.attributes["sync.answer"], span.error) for span in way.kept.named("operation")]
    assert answers == [("busy", "busy"), ("applied", "")]


def test_a_lost_answer_is_in_the_trace_and_so_is_the_epoch_that_settled_it(way: Way) -> None:
    way.oldhost.control(lambda controls: controls.switch_on({"name": "drop_after", "next": 1}))
    change_id = way.post("u1", "booking_created", {})
    way.hand_over()
    assert not way.send(change_id).session_open
    assert [fate.outcome for fate in way.open(change_id).fates] == ["APPLIED"]
    way.trace_fates()
    assert [span.attributes["sync.answer"] for span in way.kept.named("operation")] == ["ambiguous"]
    change = way.spans(change_id)[0]
    assert (change.attributes["sync.outcome"], change.moments[0].attributes["sync.sends"]) == ("APPLIED", 1)


def test_what_died_with_a_worker_is_told_by_the_ledger(way: Way) -> None:
    way.oldhost.control(lambda controls: controls.switch_on({"name": "drop_before", "next": 1}))
    change_id = way.post("u1", "booking_created", {})
    way.hand_over()
    tracer, way.sessions.tracer = way.sessions.tracer, None  # its spans were never delivered
    assert not way.send(change_id).session_open
    way.sessions.tracer = tracer
    way.epoch = way.open(change_id).epoch
    way.send(change_id)
    way.trace_fates()
    (again,) = way.kept.named("operation")
    assert (again.attributes["sync.epoch"], again.attributes["sync.sent_before"]) == (way.epoch, 1)
    told = [
        (one.name, one.attributes["sync.epoch"], one.attributes["sync.sends"])
        for one in way.spans(change_id)[0].moments
    ]
    assert told == [("sent", 1, 1), ("sent", way.epoch, 2), ("answered", way.epoch, 2)]


def test_a_dead_letter_that_is_retried_goes_on_in_its_trace_without_a_second_whole(way: Way) -> None:
    way.oldhost.control(lambda controls: controls.switch_on({"name": "reject", "next": 1}))
    change_id = way.post("u1", "booking_created", {})
    way.hand_over()
    way.send(change_id)
    way.trace_fates()
    way.world.decide("retry", change_id=change_id)
    way.send(change_id)
    way.trace_fates()
    change, *parts = way.spans(change_id)
    assert [part.name for part in parts] == ["accept", "relay", "wait", "operation", "wait", "operation", "retry"]
    assert (change.attributes["sync.outcome"], parts[-1].attributes["sync.outcome"]) == ("DEAD", "APPLIED")


def test_a_relay_that_begins_tells_of_what_was_decided_just_before(way: Way) -> None:
    change_id = way.world.record("u1")
    way.send(change_id)
    way.fates._seen.clear()
    way.trace_fates()
    assert [span.attributes["sync.change_id"] for span in way.kept.named("change")] == [change_id]


def test_a_relay_that_begins_leaves_alone_what_was_decided_long_before(way: Way) -> None:
    old, new = way.world.record("u1"), way.world.record("u2")
    way.send(old)
    way.world.execute("UPDATE outbox_events SET processed_at = processed_at - INTERVAL 61 SECOND WHERE id = %s", old)
    way.send(new)
    way.fates._seen.clear()
    way.trace_fates()
    assert [span.attributes["sync.change_id"] for span in way.kept.named("change")] == [new]


def test_a_relay_on_standby_tells_of_no_fate(way: Way) -> None:
    change_id = way.world.record("u1")
    way.send(change_id)
    asyncio.run(way.relay.leadership.release())
    asyncio.run(way.fates.run_once(way.now))
    assert way.kept.named("change") == []


@pytest.mark.parametrize("ratio", [0.0])
def test_with_a_ratio_of_none_no_change_is_traced(way: Way, ratio: float) -> None:
    change_id = way.post("u1", "booking_created", {})
    way.hand_over()
    way.send(change_id)
    way.trace_fates()
    assert way.kept.spans == []
