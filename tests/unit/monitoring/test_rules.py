"""The rules of Prometheus fire when they should and lead to the runbook; the dashboard and they name what is there."""

from __future__ import annotations

import re

import pytest
import yaml
from prometheus_client import CollectorRegistry

from oldhost_sync.api.telemetry import RequestMetrics
from tests.monitoring.alert_rules import FOLDER, ROOT, Scraper, rule_tests, rules
from tests.monitoring.promtool import promtool

RULES = rules()


def slug(heading: str) -> str:
    """As GitHub makes the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml"),
     ("check", "config", "--syntax-only", "prometheus.yml")],
    ids=" ".join,
)  # fmt: skip
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    """Each rule fires when its tests say so, and then says where to look."""
    *command, file = arguments
    told = promtool(*command, FOLDER / file)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_tried_firing_and_silent(name: str) -> None:
    tried = [bool(each["exp_alerts"]) for case in rule_tests() for each in case["alert_rule_test"]
             if each["alertname"] == name]  # fmt: skip
    assert {*tried} == {True, False}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_severity_a_summary_and_a_section_of_the_runbook(name: str) -> None:
    rule = RULES[name]
    assert rule.labels["severity"] in {"warning", "critical"}
    assert rule.annotations["summary"].endswith(".")
    page, _, anchor = rule.annotations["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {slug(heading) for heading in headings}


@pytest.mark.parametrize(
    "needed", ["Banned", "Halted", "PromiseBroken", "EmergencyLate", "NoWriter", "NoWorker", "RelayStuck",
               "NoApi", "DeadLetters", "UndeliveredAlerts", "BooksImbalance", "LostReplies", "NoRelay", "NoFigures"],
)  # fmt: skip
def test_what_must_wake_somebody_has_a_rule(needed: str) -> None:
    assert f"OldHostSync{needed}" in RULES


def test_what_prometheus_is_told_to_read_is_there() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [name for name in config["rule_files"] if not (FOLDER / name).exists()] == []
    assert {job["job_name"].rpartition("-")[2] for job in config["scrape_configs"]} == {"relay", "worker", "api", "sdk"}


def test_an_api_that_is_gone_fires_though_relay_and_worker_are_well() -> None:
    """By the real exporter of an API that answered before; a relay and a worker go on."""
    scraper = Scraper(RequestMetrics().registry)
    scraper.scrape(8)
    assert "OldHostSyncNoApi" not in scraper.firing()
    gone = Scraper(CollectorRegistry())
    gone.scrape(8)
    assert "OldHostSyncNoApi" in gone.firing()


def scraped_names() -> dict[str, tuple[str, int]]:
    """By job: the name whose addresses are scraped, and the port."""
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    found = {}
    for job in jobs:
        (asked,) = job["dns_sd_configs"]
        assert (asked["type"], len(asked["names"])) == ("A", 1)
        found[job["job_name"].removeprefix("oldhost-sync-")] = (asked["names"][0], asked["port"])
    return found


def test_each_process_of_a_role_in_compose_is_scraped_not_one_by_chance() -> None:
    """A name in compose has the addresses of all its containers; a static target is any one of them."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name, port in scraped_names().values():
        role = services[name]["environment"]
        binds = [role.get(each, "") for each in ("SYNC_API_BIND", "SYNC_METRICS_BIND", "SYNC_TEMPORAL_METRICS_BIND")]
        assert f"0.0.0.0:{port}" in binds


def test_each_pod_of_a_role_in_kubernetes_has_an_address_that_prometheus_can_ask_for() -> None:
    base = ROOT / "deploy" / "kubernetes" / "base"
    objects = [each for path in base.glob("*.yaml") for each in yaml.safe_load_all(path.read_text()) if each]
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    pods = {each["metadata"]["name"]: each["spec"]["template"] for each in objects if each["kind"] == "Deployment"}
    told = (FOLDER / "prometheus.yml").read_text()
    for name, port in scraped_names().values():
        called = "api-pods" if name == "api" else name
        service = services[called]
        assert f"{called}.oldhost-sync" in told
        assert service["clusterIP"] == "None"  # a name for each pod's address
        assert service["selector"].items() <= pods[name]["metadata"]["labels"].items()
        ports = {each["name"]: each["containerPort"] for each in pods[name]["spec"]["containers"][0]["ports"]}
        assert port in {ports[each["targetPort"]] for each in service["ports"]}
