"""The switchboard of faults: which are on, and whether one fires for this call.

A fault fires with a `probability` (drawn from a seeded generator), or the `next` N times and then never again, or,
with neither, always. It fires for calls of the kind `on` (one of `KINDS`, or any) that match its `rule`. The first
`skip` of these pass; of the others only every Nth is hit if `every` is given. Faults are checked in the order in which
they were switched on. Several of one name can be on at once under different labels.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oldhost_simulator.call import Call
from oldhost_simulator.dialects.dialect import Answer
from oldhost_simulator.host import InjectedEvent, InjectedEventName, Rejection
from oldhost_simulator.limits import FOREIGN_WRITES_MAX

ENDINGS: Final = (
    "drop_before", "apply_late", "drop_after", "cut_reply", "garbage", "hang", "close_after", "http10", "duplicate",
    "swallow", "answer",
)  # fmt: skip
INJECTED_EVENTS: Final[tuple[InjectedEventName, ...]] = ("restore", "foreign_write", "ban")
USES: Final = ("applied", "used", "unused")
GARBAGE: Final = ("bytes", "not_json", "status", "other_nonce")

PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "slow": {"extra_ms": 1000.0},
    "working": {"every_ms": 1000.0},
    "busy": {"retry_after": 1.0},
    "reject": {"consume": True, "reason": "refused by a rule"},
    "drop_before": {"reset": False},
    "drop_after": {"reset": False},
    "apply_late": {"delay_ms": 1000.0},
    "cut_reply": {},
    "garbage": {"applied": True, "reply": "bytes"},
    "refuse": {},
    "hang": {"seconds": 60.0, "applied": False},
    "idle_close": {"after_ms": 1000.0},
    "close_after": {},
    "http10": {"length": True},
    "duplicate": {"answer": "second"},
    "swallow": {},
    "answer": {"status": 500, "body": "", "nonce": "used"},
    "say": {"status": 0, "shift": 0, "fields": {}},
    "ban": {"seconds": None},
    "restore": {"back": 1},
    "foreign_write": {"count": 1},
}
"""Each fault's own parameters with their defaults. A ban's None is the host's usual length.

The last five of the endings, and `say`, are hosts and proxies that behave oddly: the connection is closed without
notice after a whole reply (`close_after`); HTTP/1.0 with one request per connection (`http10`, with a Content-Length or
without); a proxy delivers a request twice and the client gets the first or the second answer (`duplicate`); the host
answers and continues, but its reply never arrives (`swallow`); the answer is this `status` with this `body`, and the
operation was applied, only its nonce used, or neither (`answer`); an answer of this `status` (0: any) has other
`fields`, or an expected nonce moved by `shift` (`say`).

`working`: while the host is about it, it says so each `every_ms`. What HTTP/1.0 is by frames: the answer is its
connection's last. There, answers have no status.
"""

_COMMON: Final = ("name", "label", "on", "probability", "next", "skip", "every", "rule")
KINDS: Final = ("sync", "ask", "outcome", "logon")
_CHOICES: Final = {"reply": GARBAGE, "answer": ("first", "second"), "nonce": USES}
_RULE_FIELDS: Final = ("entity_type", "entity_id", "event_type", "nonce", "field", "equals")
_MISSING: Final = object()


@dataclass(slots=True)
class Fault:
    name: str
    label: str
    on: str = "sync"
    probability: float | None = None
    next: int | None = None
    skip: int = 0
    every: int | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fired: int = 0
    met: int = 0

    def to_json(self) -> dict[str, Any]:
        common = {name: getattr(self, name) for name in _COMMON}
        return {**common, **self.parameters, "fired": self.fired}

    def fits(self, call: Call) -> bool:
        return self.on in {"any", call.kind} and all(self._holds(name, call) for name in self.rule if name != "equals")

    def _holds(self, name: str, call: Call) -> bool:
        if name == "nonce":
            return bool(call.nonce == self.rule["nonce"])
        path, expected = (self.rule["field"], self.rule["equals"]) if name == "field" else (name, self.rule[name])
        value: Any = call.body
        for step in path.split("."):
            value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
        return bool(value == expected)


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call is handled: how much longer it takes and how it ends. Without an `ending` it gets a plain answer.

    `working_seconds`: how often the client is told that the answer takes longer; None: never.
    """

    extra_seconds: float = 0.0
    working_seconds: float | None = None
    ending: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


PLAIN: Final = Plan()


class Switchboard:
    """The faults that are on; implements `FaultSource` (`host.py`)."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: dict[str, Fault] = {}

    def faults(self) -> list[dict[str, Any]]:
        return [fault.to_json() for fault in self._faults.values()]

    def switch_on(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Switches a fault on; it replaces the one with the same label. Raises InvalidParameterError."""
        fault = read_fault(wanted)
        self._faults.pop(fault.label, None)
        self._faults[fault.label] = fault
        return fault.to_json()

    def switch_off(self, name: str | None = None) -> int:
        """Switches off all faults, or those with that label or name; returns how many."""
        gone = [label for label, fault in self._faults.items() if name in {None, label, fault.name}]
        for label in gone:
            del self._faults[label]
        return len(gone)

    # ------------------------------------------------------------------------------------------------- firing

    def plan(self, call: Call) -> Plan:
        if not self._faults:
            return PLAIN
        slow = self._fire(("slow",), call)
        extra_seconds = slow.parameters["extra_ms"] / 1000 if slow else 0.0
        working = self._fire(("working",), call)
        working_seconds = max(1.0, working.parameters["every_ms"]) / 1000 if working else None
        ending = self._fire(ENDINGS, call)
        if ending is None:
            return Plan(extra_seconds, working_seconds)
        return Plan(extra_seconds, working_seconds, ending.name, ending.parameters)

    def busy_seconds(self, call: Call) -> float | None:
        fault = self._fire(("busy",), call)
        return None if fault is None else float(fault.parameters["retry_after"])

    def rejection(self, call: Call) -> Rejection | None:
        fault = self._fire(("reject",), call)
        return None if fault is None else Rejection(fault.parameters["reason"], fault.parameters["consume"])

    def said(self, call: Call, answer: Answer, expected: str) -> Answer:
        """The answer that is sent instead of `answer`; `expected`: its field with the number that is wanted next."""
        for fault in self._faults.values():
            fits = fault.name == "say" and fault.parameters["status"] in {0, answer.status} and fault.fits(call)
            if fits and self._draw(fault):
                fault.fired += 1
                return _other(answer, fault.parameters["fields"], expected, fault.parameters["shift"])
        return answer

    def injected_events(self, call: Call) -> list[InjectedEvent]:
        fired = [(name, self._fire((name,), call)) for name in INJECTED_EVENTS]
        return [InjectedEvent(name=name, **fault.parameters) for name, fault in fired if fault is not None]

    def refuses_connection(self) -> bool:
        return self._fire(("refuse",), None) is not None

    def idle_close_seconds(self) -> float | None:
        """After how long an idle connection may be closed; `closes_idle` then decides whether it is."""
        spans = [fault.parameters["after_ms"] / 1000 for fault in self._faults.values() if fault.name == "idle_close"]
        return min(spans, default=None)

    def closes_idle(self) -> bool:
        return self._fire(("idle_close",), None) is not None

    def _fire(self, names: tuple[str, ...], call: Call | None) -> Fault | None:
        for fault in self._faults.values():
            if fault.name in names and (call is None or fault.fits(call)) and self._draw(fault):
                fault.fired += 1
                return fault
        return None

    def _draw(self, fault: Fault) -> bool:
        if fault.next == 0:
            return False
        if fault.skip > 0:
            fault.skip -= 1
            return False
        fault.met += 1
        if fault.every is not None and fault.met % fault.every != 0:
            return False
        if fault.probability is not None and self._random.random() >= fault.probability:
            return False
        if fault.next is not None:
            fault.next -= 1
        return True


def _other(answer: Answer, fields: Mapping[str, Any], expected: str, shift: int) -> Answer:
    body = {**answer.body, **fields}
    if shift and isinstance(body.get(expected), int):
        body[expected] = max(0, body[expected] + shift)
    return Answer(answer.status, body)


# ----------------------------------------------------------------------------------------------------- reading


class InvalidParameterError(Exception):
    """A parameter of an admin request is invalid; the text says what is allowed. Nothing was changed."""


def read_only(wanted: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    unknown = [key for key in wanted if key not in known]
    if unknown:
        raise InvalidParameterError(f"{what} has no {', '.join(unknown)}; it has: {', '.join(known) or 'nothing'}")


def read_number(key: str, value: Any, *, up_to: float = float("inf")) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= up_to
        or value == float("inf")
    ):
        limit = "on" if up_to == float("inf") else f"to {up_to:g}"
        raise InvalidParameterError(f"{key} must be a finite number from 0 {limit}, not {value!r}")
    return value


def read_whole_number(key: str, value: Any, *, up_to: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (up_to is not None and value > up_to):
        limit = "on" if up_to is None else f"to {up_to}"
        raise InvalidParameterError(f"{key} must be a whole number from 0 {limit}, not {value!r}")
    return value


def read_shift(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"{key} must be a whole number, not {value!r}")
    return value


def read_flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameterError(f"{key} must be true or false, not {value!r}")
    return value


def read_text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidParameterError(f"{key} must be a text, not {value!r}")
    return value


def read_choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameterError(f"{key} must be {' or '.join(choices)}, not {value!r}")
    return value


def read_object(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{key} must be a JSON object, not {value!r}")
    return value


_READERS: Final[Mapping[type, Callable[[str, Any], Any]]] = {bool: read_flag, str: read_text, dict: read_object}


def read_fault(wanted: Mapping[str, Any]) -> Fault:
    """A fault from its JSON. Raises InvalidParameterError."""
    name = read_choice("name", wanted.get("name"), tuple(PARAMETERS))
    own = PARAMETERS[name]
    read_only(wanted, (*_COMMON, *own), name)
    probability, next_times, every = wanted.get("probability"), wanted.get("next"), wanted.get("every")
    return Fault(
        name=name,
        label=read_text("label", wanted.get("label", name)),
        on=read_choice("on", wanted.get("on", "sync"), (*KINDS, "any")),
        probability=None if probability is None else read_number("probability", probability, up_to=1),
        next=None if next_times is None else read_whole_number("next", next_times),
        skip=read_whole_number("skip", wanted.get("skip", 0)),
        every=None if every is None else max(1, read_whole_number("every", every)),
        rule=_rule(wanted.get("rule", {})),
        parameters={key: _parameter(key, wanted.get(key, default), default) for key, default in own.items()},
    )


def _rule(value: Any) -> Mapping[str, Any]:
    rule = read_object("rule", value)
    read_only(rule, _RULE_FIELDS, "a rule")
    if ("field" in rule) != ("equals" in rule):
        raise InvalidParameterError('a rule on a field needs both: {"field": "payload.status", "equals": "Bad"}')
    read_text("field", rule.get("field", ""))
    return dict(rule)


def _parameter(key: str, value: Any, default: Any) -> Any:
    if key in _CHOICES:
        return read_choice(key, value, _CHOICES[key])
    if key == "seconds" and value is default:
        return value
    if key in {"back", "count", "status"}:
        return read_whole_number(key, value, up_to=FOREIGN_WRITES_MAX if key == "count" else None)
    return (read_shift if key == "shift" else _READERS.get(type(default), read_number))(key, value)
