"""Traces of the whole product: processes of their own, one collector, and a collector that never answers."""

from __future__ import annotations

import signal

import pytest

from oldhost_sync.settings import TraceExport
from tests.faults.product import Product
from tests.monitoring.collector import collector, silent_collector

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

ROLES = ("relay", "worker", "api")
UNDELIVERED = "traces can't be delivered"


def trace_to(product: Product, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    product.settings = product.settings.model_copy(update={"traces": TraceExport.OTLP})
    product.start_api()


def start_others(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    product.start_writer()


def test_api_relay_and_worker_each_add_to_the_one_trace_of_a_change(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as kept:
        trace_to(product, kept.address, monkeypatch)
        booked = product.api.change("u1", "booking_created", {"guest": "Ada Lovelace"}, key="key-of-the-application")
        old, new = (product.api.change("u2", "unit_status_changed", {"status": status}) for status in ("A", "B"))
        start_others(product)  # so that both come in one signal

        def is_whole() -> bool:
            traces = [kept.of_change(change_id) for change_id in (booked, old, new)]
            return [len(trace) for trace in traces] == [5, 4, 5] and all(not trace[0].parent_id for trace in traces)

        product.wait_for("all spans", is_whole)
        change, *parts = kept.of_change(booked)
        told = {(part.service.removeprefix("oldhost-sync-"), part.name) for part in parts}
        assert told == {("api", "accept"), ("relay", "relay"), ("relay", "wait"), ("worker", "operation")}
        assert (change.name, change.attributes["sync.outcome"]) == ("change", "APPLIED")
        assert {part.parent_id for part in parts} == {change.span_id}
        superseded, successor = kept.of_change(old)[0], kept.of_change(new)[0]
        assert superseded.links == [(successor.trace_id, "superseded by")]
        assert successor.links == [(superseded.trace_id, "supersedes")]
        assert not [body for body in kept.bodies if b"Lovelace" in body or b"key-of-the-application" in body]


def test_a_collector_that_never_answers_slows_nothing_and_is_told_once_by_each_role(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with silent_collector() as (address, came):
        trace_to(product, address, monkeypatch)
        start_others(product)
        for number in range(30):
            product.api.change(f"u{number}", "booking_created", {})
        product.wait_for("all to be applied", lambda: len(product.applied()) == 30)
        assert came.is_set(), "somebody tried to deliver"
        product.wait_for("it to be told", lambda: product.logs().count(UNDELIVERED) == len(ROLES))
        product.api.change("u1", "booking_created", {})
        product.wait_for("the last one", lambda: len(product.applied()) == 31)
        for role in ROLES:
            child = product.children[role]
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0
        assert product.logs().count(UNDELIVERED) == len(ROLES)
        product.check_clean()
