"""Every metric that the rules, the dashboard and the documents name is exported by a role, and the reverse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from oldhost_sync.api.telemetry import RequestMetrics
from oldhost_sync.telemetry import (
    AppliedWaits,
    DeliveryMetrics,
    FateMetrics,
    HostMetrics,
    RelayMetrics,
    WorkerMetrics,
    show_role,
)
from oldhost_sync.temporal.client import SDK_METRICS
from tests.monitoring.alert_rules import ROOT, rules

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "oldhost-sync.json").read_text())
NAME = re.compile(r"oldhost_sync_[a-z_]+")
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


def relay() -> CollectorRegistry:
    registry = CollectorRegistry()
    for made in (RelayMetrics, AppliedWaits, FateMetrics, HostMetrics, DeliveryMetrics):
        made(registry)
    show_role(registry, "relay", float)
    return registry


def worker() -> CollectorRegistry:
    registry = CollectorRegistry()
    WorkerMetrics(registry)
    DeliveryMetrics(registry)
    show_role(registry, "worker", float)
    return registry


def api() -> CollectorRegistry:
    return RequestMetrics().registry


ROLES: dict[str, Callable[[], CollectorRegistry]] = {"relay": relay, "worker": worker, "api": api}


def families(role: str) -> dict[str, str]:
    """Names of the role's metrics as they are documented, and their types."""
    found = {family.name: family.type for family in ROLES[role]().collect()}
    return {f"{name}_total" if kind == "counter" else name: kind for name, kind in found.items()}


def exported() -> set[str]:
    """The names of all series that the roles can show."""
    found: set[str] = set()
    for make in ROLES.values():
        for family in make().collect():
            found |= {f"{family.name}{suffix}" for suffix in _SUFFIXES[family.type]}
    return found


def expressions() -> list[str]:
    targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return [*(target["expr"] for target in targets), *(rule.expression for rule in rules().values())]


def test_every_metric_that_rules_and_dashboard_name_is_exported() -> None:
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 20
    assert sorted(name for name in named if not name.startswith(SDK_METRICS) and name not in exported()) == []


def documented(*roles: str) -> dict[str, str]:
    """The metrics of these roles in the runbook's table, and their labels."""
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = dict(re.findall(r"^\| (relay|worker|api|all) \| (`.*`) \|$", page, re.MULTILINE))
    return {
        f"oldhost_sync_{name}": labels
        for role in roles
        for name, labels in re.findall(r"`([a-z_]+…?)(?:\{([a-z_,]*)\})?`", rows[role])
    }


@pytest.mark.parametrize("role", ROLES)
def test_the_documented_metrics_are_those_that_the_role_exports(role: str) -> None:
    processes = {name for name in families(role) if name.startswith("oldhost_sync_process_")}
    assert processes
    assert documented(role, "all").keys() - {"oldhost_sync_process_…"} == {*families(role)} - processes


@pytest.mark.parametrize("role", ROLES)
def test_every_metric_says_what_it_means(role: str) -> None:
    assert [family.name for family in ROLES[role]().collect() if " " not in family.documentation] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_metric_is_in_our_name_space(role: str) -> None:
    assert [name for name in families(role) if not name.startswith("oldhost_sync_")] == []


def test_no_label_can_hold_a_payload_or_an_id() -> None:
    labels = {label for told in documented("all", *ROLES).values() for label in told.split(",") if label}
    assert labels == {
        "condition", "host", "kind", "method", "outcome", "priority_class", "promise", "reason", "role", "route",
        "severity", "state", "status",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- dashboard


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_the_dashboard_has_one_board_for_each_question() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["State", "Lanes", "Latency", "Bans and sessions", "Dead letters and alerts", "Worker and API"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len({*ids})


def test_panels_stand_beside_one_another_and_not_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_a_panel_asks_the_chosen_source_for_the_chosen_hosts(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
    assert panel["targets"]
    for target in panel["targets"]:
        of_a_host = not re.search(r"oldhost_sync_(?:temporal|api|process|role)_", target["expr"])
        assert ('host=~"$host"' in target["expr"]) is of_a_host
