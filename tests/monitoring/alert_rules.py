"""The rules of deploy/prometheus, and what fires when something was scraped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from tests.monitoring.promql import Labels, Scrapes, Vector, seconds

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
STEP_S = 15


@dataclass(frozen=True)
class Rule:
    """One rule; `for_s`: how long its expression must hold."""

    name: str
    expression: str
    for_s: int
    labels: dict[str, str]
    annotations: dict[str, str]

    def firing(self, scrapes: Scrapes, at_s: int) -> Vector:
        """What fires at `at_s`: what has held at each evaluation since `for_s` before."""
        held: Vector | None = None
        for moment in range(max(0, at_s - self.for_s), at_s + 1, STEP_S):
            found = scrapes.evaluate(self.expression, moment)
            held = found if held is None else {labels: value for labels, value in found.items() if labels in held}
        return (held or {}) if at_s >= self.for_s else {}

    def shown(self, labels: Labels) -> tuple[dict[str, str], dict[str, str]]:
        """The labels and annotations of an alert."""
        values = dict(labels)
        filled = {
            name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: values.get(found[1], ""), text)
            for name, text in self.annotations.items()
        }
        return {**values, **self.labels}, filled


def rules() -> dict[str, Rule]:
    """By name."""
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return {
        each["alert"]: Rule(
            each["alert"], each["expr"], seconds(str(each.get("for", "0s"))), each["labels"], each["annotations"]
        )
        for group in groups
        for each in group["rules"]
    }


def rule_tests() -> list[dict[str, Any]]:
    """As promtool reads them."""
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    return found


def scraped(series: list[dict[str, str]]) -> Scrapes:
    """promtool's `input_series`, at steps of STEP_S."""
    by_name: dict[str, dict[Labels, list[float | None]]] = {}
    for each in series:
        name, _, labels = each["series"].partition("{")
        pairs = frozenset(re.findall(r'(\w+)="([^"]*)"', labels))
        by_name.setdefault(name, {})[pairs] = list(_samples(each["values"]))
    return Scrapes(by_name, STEP_S)


def _samples(notation: str) -> Iterator[float | None]:
    """`1x3` is 1 1 1 1; `1+2x3` is 1 3 5 7; `_` is no sample; `stale`: it was scraped, and the series was not there."""
    for part in notation.split():
        if part in {"_", "stale"}:
            yield None
            continue
        match = re.fullmatch(r"(\d+)(?:\+(\d+))?(?:x(\d+))?", part)
        assert match is not None, part
        first, step, times = int(match[1]), int(match[2] or 0), int(match[3] or 0)
        for number in range(times + 1):
            yield float(first + step * number)


class Scraper:
    """Scrapes real exporters, one sample a step, as Prometheus would."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries
        self._by_name: dict[str, dict[Labels, list[float | None]]] = {}
        self._steps = 0

    def scrape(self, times: int = 1) -> None:
        """So many samples of what is shown now."""
        for _ in range(times):
            self._steps += 1
            for registry in self._registries:
                for family in registry.collect():
                    for sample in family.samples:
                        known = self._by_name.setdefault(sample.name, {}).setdefault(
                            frozenset(sample.labels.items()), []
                        )
                        known += [None] * (self._steps - 1 - len(known)) + [float(sample.value)]

    def firing(self) -> set[str]:
        """The names of the rules that fire at the last scrape; a series that ended has no samples since."""
        for series in self._by_name.values():
            for known in series.values():
                known.extend([None] * (self._steps - len(known)))
        scrapes, now = Scrapes(self._by_name, STEP_S), (self._steps - 1) * STEP_S
        return {name for name, rule in rules().items() if rule.firing(scrapes, now)}
