"""The rules of deploy/prometheus, and what fires when something was scraped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from tests.monitoring.promtool import firing

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES, RULES_TEST = FOLDER / "rules.yml", FOLDER / "rules_test.yml"
STEP_S = 15


@dataclass(frozen=True)
class Rule:
    """One rule, as its file has it."""

    name: str
    expression: str
    labels: dict[str, str]
    annotations: dict[str, str]


def rules() -> dict[str, Rule]:
    """By name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {
        each["alert"]: Rule(each["alert"], each["expr"], each["labels"], each["annotations"])
        for group in groups
        for each in group["rules"]
    }


def rule_tests() -> list[dict[str, Any]]:
    """As promtool reads them."""
    found: list[dict[str, Any]] = yaml.safe_load(RULES_TEST.read_text())["tests"]
    return found


class Scraper:
    """Scrapes real exporters, one sample a step, as Prometheus would."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries
        self._series: dict[str, list[str]] = {}
        self._steps = 0

    def scrape(self, times: int = 1) -> None:
        """So many samples of what is shown now. A series that is not there any more is stale, as in Prometheus."""
        for _ in range(times):
            shown = {
                _series(sample.name, sample.labels): float(sample.value)
                for registry in self._registries
                for family in registry.collect()
                for sample in family.samples
            }
            for name in {**self._series, **shown}:
                known = self._series.setdefault(name, ["_"] * self._steps)
                ended = "_" if not known or known[-1] in {"_", "stale"} else "stale"
                known.append(f"{shown[name]:f}" if name in shown else ended)
            self._steps += 1

    def firing(self) -> set[str]:
        """The names of the rules that fire at the last scrape."""
        known = rules()
        read = " ".join(rule.expression for rule in known.values())
        series = {name: " ".join(values) for name, values in self._series.items() if name.partition("{")[0] in read}
        return firing(RULES, list(known), series, STEP_S, (self._steps - 1) * STEP_S)


def _series(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items()) + "}"
