"""As much of PromQL as the rules use, so that they are tried wherever the tests run. promtool says the same of them.

Anything else is refused: a rule that this can't read fails its test. Series are {labels: samples at equal steps}; a
sample is a number or None (none was scraped).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = Mapping[Labels, Sequence[float | None]]

# How long a sample is good for, as in Prometheus.
FRESH_SECONDS = 300
_TOKEN = re.compile(
    r'\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\dsmh])|(?P<name>[a-zA-Z_:][\w:]*)|(?P<text>"[^"]*")'
    r"|(?P<span>\d+[smh])|(?P<sign>==|!=|=~|>=|<=|[-+*/()<>={}\[\],]))"
)
_UNITS = {"s": 1, "m": 60, "h": 3600}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / other,
}


_AGGREGATES: dict[str, Callable[..., float]] = {"max": max, "min": min, "sum": sum}


class Unread(Exception):
    """The expression holds something that this does not know."""


def seconds(text: str) -> int:
    """`1m30s` in seconds; `0` too."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smh])", text))


@dataclass(frozen=True)
class Scrapes:
    """What was scraped, every `step_s`, by metric name."""

    by_name: Mapping[str, Series]
    step_s: int

    def evaluate(self, expression: str, at_s: int) -> Vector:
        """The vector that `expression` gives at `at_s`."""
        parser = _Parser(expression, self, at_s)
        found = parser.either()
        if parser.tokens:
            raise Unread(f"{parser.tokens[0][1]} in {expression}")
        return found if isinstance(found, dict) else {frozenset(): found}

    def latest(self, name: str, chosen: Callable[[Labels], bool], at_s: int) -> Vector:
        found: Vector = {}
        for labels, samples in self.by_name.get(name, {}).items():
            upto = at_s // self.step_s
            fresh = samples[max(0, upto + 1 - FRESH_SECONDS // self.step_s) : upto + 1]
            known = [sample for sample in fresh if sample is not None]
            if known and fresh[-1] is not None and chosen(labels):
                found[labels] = known[-1]
        return found

    def increase(self, name: str, chosen: Callable[[Labels], bool], at_s: int, span_s: int) -> Vector:
        """From the first to the last sample in the span; a counter that goes down was begun anew."""
        found: Vector = {}
        for labels, samples in self.by_name.get(name, {}).items():
            first, last = max(0, (at_s - span_s) // self.step_s), at_s // self.step_s
            known = [sample for sample in samples[first : last + 1] if sample is not None]
            if len(known) > 1 and chosen(labels):
                steps = itertools.pairwise(known)
                found[labels] = sum(after - before if after >= before else after for before, after in steps)
        return found


class _Parser:
    """Evaluates while it reads: `or` binds least, then `unless`, then comparison, then + and -, then * and /."""

    def __init__(self, expression: str, scrapes: Scrapes, at_s: int) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.scrapes, self.at_s = scrapes, at_s
        place = 0
        while expression[place:].strip():
            match = _TOKEN.match(expression, place)
            if match is None:
                raise Unread(expression[place:])
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))
            place = match.end()

    def either(self) -> Vector | float:
        found = self.excepted()
        while self._took("or"):
            other = self.excepted()
            if not isinstance(found, dict) or not isinstance(other, dict):
                raise Unread("or between numbers")
            found = {**other, **found}
        return found

    def excepted(self) -> Vector | float:
        found = self.compared()
        while self._took("unless"):
            other = self.compared()
            if not isinstance(found, dict) or not isinstance(other, dict):
                raise Unread("unless between numbers")
            found = {labels: value for labels, value in found.items() if labels not in other}
        return found

    def compared(self) -> Vector | float:
        found = self.summed(("+", "-"))
        if self.tokens and self.tokens[0][1] in _COMPARE:
            holds = _COMPARE[self._next()]
            bound = self.summed(("+", "-"))
            if not isinstance(found, dict) or isinstance(bound, dict):
                raise Unread("a comparison that is not of a vector with a number")
            return {labels: value for labels, value in found.items() if holds(value, bound)}
        return found

    def summed(self, signs: tuple[str, ...]) -> Vector | float:
        found = self.summed(("*", "/")) if signs == ("+", "-") else self.factor()
        while self.tokens and self.tokens[0][1] in signs:
            reckon = _ARITHMETIC[self._next()]
            other = self.summed(("*", "/")) if signs == ("+", "-") else self.factor()
            found = _combined(reckon, found, other)
        return found

    def factor(self) -> Vector | float:
        kind, text = self.tokens.pop(0)
        if kind == "number":
            return float(text)
        if text == "(":
            found = self.either()
            self._expect(")")
            return found
        if kind != "name":
            raise Unread(text)
        if text in _AGGREGATES:
            return self._aggregated(_AGGREGATES[text])
        if text in {"time", "absent", "increase"}:
            return self._called(text)
        if self.tokens and self.tokens[0][1] == "(":
            raise Unread(text)
        return self.scrapes.latest(text, self._chosen()[0], self.at_s)

    def _called(self, name: str) -> Vector | float:
        self._expect("(")
        found: Vector | float
        if name == "time":
            found = float(self.at_s)
        else:
            metric = self._next()
            chosen, equal = self._chosen()
            if name == "absent":
                found = {} if self.scrapes.latest(metric, chosen, self.at_s) else {equal: 1.0}
            else:
                self._expect("[")
                span_s = seconds(self._next())
                self._expect("]")
                found = self.scrapes.increase(metric, chosen, self.at_s, span_s)
        self._expect(")")
        return found

    def _aggregated(self, reckon: Callable[[list[float]], float]) -> Vector:
        kept: list[str] = []
        if self._took("by"):
            self._expect("(")
            while not self._took(")"):
                kept.append(self._next())
                self._took(",")
        self._expect("(")
        vector = self.either()
        self._expect(")")
        if not isinstance(vector, dict):
            raise Unread("an aggregation of a number")
        groups: dict[Labels, list[float]] = {}
        for labels, value in vector.items():
            groups.setdefault(frozenset(pair for pair in labels if pair[0] in kept), []).append(value)
        return {labels: reckon(values) for labels, values in groups.items()}

    def _chosen(self) -> tuple[Callable[[Labels], bool], Labels]:
        """Which labels the matchers in braces choose, and those that they say."""
        matchers: list[tuple[str, str, str]] = []
        if self._took("{"):
            while not self._took("}"):
                matchers.append((self._next(), self._next(), self._next().strip('"')))
                self._took(",")

        def chosen(labels: Labels) -> bool:
            values = dict(labels)
            return all(_matches(sign, values.get(name, ""), wanted) for name, sign, wanted in matchers)

        return chosen, frozenset((name, wanted) for name, sign, wanted in matchers if sign == "=")

    def _next(self) -> str:
        return self.tokens.pop(0)[1]

    def _took(self, text: str) -> bool:
        if self.tokens and self.tokens[0][1] == text:
            self.tokens.pop(0)
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise Unread(f"{text} is missing before {self.tokens[:1]}")


def _matches(sign: str, value: str, wanted: str) -> bool:
    if sign == "=~":
        return re.fullmatch(wanted, value) is not None
    if sign not in {"=", "!="}:
        raise Unread(sign)
    return (value == wanted) is (sign == "=")


def _combined(reckon: Callable[[float, float], float], one: Vector | float, other: Vector | float) -> Vector | float:
    if isinstance(one, dict) and isinstance(other, dict):
        return {labels: reckon(value, other[labels]) for labels, value in one.items() if labels in other}
    if isinstance(one, dict):
        return {labels: reckon(value, float(other)) for labels, value in one.items()}  # type: ignore[arg-type]
    if isinstance(other, dict):
        return {labels: reckon(one, value) for labels, value in other.items()}
    return reckon(one, other)
