"""The rules of Prometheus fire when they should and lead to the runbook; the dashboard and they name what is there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.monitoring.alert_rules import FOLDER, ROOT, STEP_S, rule_tests, rules, scraped
from tests.monitoring.promql import Scrapes, Unread, seconds

RULES = rules()


def slug(heading: str) -> str:
    """As GitHub makes the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("case", rule_tests(), ids=lambda case: str(case["name"]))
def test_a_rule_fires_when_it_should_and_says_where_to_look(case: dict[str, Any]) -> None:
    scrapes = scraped(case["input_series"])
    for asked in case["alert_rule_test"]:
        rule, at_s = RULES[asked["alertname"]], seconds(asked["eval_time"])
        assert at_s % STEP_S == 0
        told = [rule.shown(labels) for labels in rule.firing(scrapes, at_s)]
        wanted = [(each["exp_labels"], each["exp_annotations"]) for each in asked["exp_alerts"]]
        assert told == wanted, asked["eval_time"]


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
               "DeadLetters", "UndeliveredAlerts", "BooksImbalance", "LostReplies", "NoRelay", "NoFigures"],
)  # fmt: skip
def test_what_must_wake_somebody_has_a_rule(needed: str) -> None:
    assert f"OldHostSync{needed}" in RULES


def test_what_prometheus_is_told_to_read_is_there() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [name for name in config["rule_files"] if not (FOLDER / name).exists()] == []
    assert {job["job_name"].rpartition("-")[2] for job in config["scrape_configs"]} == {"relay", "worker", "api", "sdk"}


@pytest.mark.parametrize("expression", ["rate(a[5m]) > 1", "a offset 5m", "a > b", "a and b", "quantile(1, a)"])
def test_what_the_evaluator_does_not_know_is_refused(expression: str) -> None:
    with pytest.raises((Unread, KeyError, IndexError)):
        Scrapes({"a": {frozenset(): [1.0]}, "b": {frozenset(): [1.0]}}, STEP_S).evaluate(expression, 0)
