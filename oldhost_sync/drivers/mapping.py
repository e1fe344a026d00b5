"""How a change becomes the body of its operation. Pure: the doors run it before they accept a change, the ledger when
it binds the bytes.

A mapping has a rule for each event type, or for an event type of one entity type. A rule is the envelope of
docs/protocol.md; or a list of outputs: a name in the body, and where its value is in the change (a JSON pointer, RFC
6901), or a constant; or code (`mapping_code`). Where a host wants each kind of change at a path of its own, method and
path are part of the bytes, so they never change either. The same name and version always have the same rules: the
ledger keeps both with the bytes.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote

from oldhost_sync.drivers import mapping_code
from oldhost_sync.policy.limits import HOST_BODY_BYTES_MAX

UNIT = "unit"
RESERVED_NAMES = ("entity_type", "entity_id", "event_type", "payload", "event_id", "idempotency_key", "unit_id")
# What a pointer may begin with.
SOURCES = ("entity_type", "entity_id", "event_type", "payload", "change_id", "idempotency_key")
# These tell changes apart and say nothing about OldHost's state: two equal states differ in them.
_IDENTITY = ("change_id", "idempotency_key")
ENVELOPE = "oldhost"
ANY = "*"
_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")
POINTER = re.compile(r"(/([^/~]|~[01])+)+")
# What a path has in braces: a pointer, or `number`, which stays: the driver puts the operation's number there.
HOLE = re.compile(r"\{([^{}]*)\}")
NUMBER = "number"
# Servers take 8 KiB for a whole line or less.
PATH_LENGTH_MAX = 2048
MISSING = object()
# The field that code may name. A value in its place would be told of.
_FIELD = re.compile(rf"({'|'.join(SOURCES)})(\.[A-Za-z_][A-Za-z0-9_]{{0,63}}){{0,8}}")


class NotMapped(Exception):  # noqa: N818 - a name says what happened
    """The mapping can't make a body of this change. The text names the event type and the pointer, never a value;
    `field`: the change's field that is to blame.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class CodeMissing(Exception):  # noqa: N818 - as above
    """A rule's code is not in this process. Here the mapping can't say whether a change can be sent."""


@dataclass(frozen=True, slots=True)
class ChangeContent:
    """What a mapping sees of a change."""

    entity_type: str
    entity_id: str
    event_type: str
    payload: Mapping[str, Any]
    change_id: int = 0
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class Encoded:
    """`mapping`: name and version of the mapping that made `body`. `state_hash`: equal for changes of one key after
    which OldHost has the same state, by the same mapping; no-ops are found by it.
    """

    body: bytes
    mapping: str
    state_hash: bytes


@dataclass(frozen=True, slots=True)
class Output:
    """One value of a body. `place`: the names that lead to it; `pointer`: where it is in the change; empty: it is
    `constant`. `required`: without it the change is invalid; else it is left out.
    """

    place: tuple[str, ...]
    pointer: str = ""
    constant: Any = None
    required: bool = True

    @property
    def is_of_state(self) -> bool:
        """Whether it says something about the entity's state."""
        return not self.pointer or tokens_of(self.pointer)[0] not in _IDENTITY


@dataclass(frozen=True, slots=True)
class Code:
    """An entry point, and the name and version of the package that had it when the mapping was installed."""

    name: str
    package: str


# None: the envelope.
BodyRule = tuple[Output, ...] | Code | None


@dataclass(frozen=True, slots=True)
class Routed:
    """A rule whose operation has a method and a path of its own, for hosts that are reached by HTTP. Each pointer in
    braces is replaced by its value, as (a part of) one segment.
    """

    method: str
    path: str
    body: BodyRule


Rule = Routed | BodyRule


@dataclass(frozen=True)
class HostMapping:
    """`rules`: by event type, or `event type/entity type`; `*` is any event type. `label`: name and version."""

    name: str
    version: str
    rules: Mapping[str, Rule]

    @cached_property
    def label(self) -> str:
        return f"{self.name}/{self.version}"

    @cached_property
    def _by(self) -> list[str]:
        """With the content, lest a version that was given twice make a no-op of another state."""
        return [self.label, version_of(self.rules)]

    def encode(self, change: ChangeContent) -> Encoded:
        """Raises NotMapped, also for a body that OldHost would refuse; CodeMissing."""
        rule = self.rule(change.event_type, change.entity_type)
        encoded = self._encoded(rule, change)
        if rule is None:
            return encoded  # its payload has a limit of its own
        if too_large(encoded.body):
            why = f"by mapping {self.label} its operation is over OldHost's {HOST_BODY_BYTES_MAX} bytes"
            raise NotMapped(f"payload is too large: {why}", "payload")
        return encoded

    def check(self, change: ChangeContent) -> None:
        """Raises as `encode`, and NotMapped for code that gives another body at each call."""
        encoded = self.encode(change)
        is_of_code = isinstance(_body_rule(self.rule(change.event_type, change.entity_type)), Code)
        if is_of_code and self.encode(change) != encoded:
            raise NotMapped(f"payload can't be mapped: mapping {self.label} gives another body each time", "payload")

    def lacks(self) -> str:
        """Why this process can't make all bodies; empty if it can."""
        for rule in map(_body_rule, self.rules.values()):
            if isinstance(rule, Code):
                try:
                    self._function(rule)
                except CodeMissing as error:
                    return str(error)
        return ""

    @property
    def has_paths(self) -> bool:
        return any(isinstance(rule, Routed) for rule in self.rules.values())

    def _encoded(self, rule: Rule, change: ChangeContent) -> Encoded:
        if isinstance(rule, Routed):
            line = f"{rule.method} {self._path(rule.path, change)}\n".encode("ascii")
            body = self._encoded(rule.body, change)
            place = self._path(rule.path, change, of_state=True)
            state = {"by": self._by, "at": [rule.method, place], "body": body.state_hash.hex()}
            return Encoded(line + body.body, self.label, payload_hash(state))
        if rule is None:
            # The envelope of every mapping gives the same state.
            return Encoded(_envelope(change), self.label, payload_hash(change.payload))
        return self._by_code(rule, change) if isinstance(rule, Code) else self._by_outputs(rule, change)

    def _path(self, path: str, change: ChangeContent, *, of_state: bool = False) -> str:
        """`of_state`: without what tells equal states apart."""

        def filled(hole: re.Match[str]) -> str:
            output = Output((), hole[1])
            if hole[1] == NUMBER or (of_state and not output.is_of_state):
                return hole[0]
            return self._segment(output, change)

        found = HOLE.sub(filled, path)
        if len(found) > PATH_LENGTH_MAX:
            raise NotMapped(f"payload is too large: mapping {self.label} makes a path of it", "payload")
        return found

    def _segment(self, output: Output, change: ChangeContent) -> str:
        value = self._value(change, output)
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        # Servers take `.` and `..` as steps, however they are encoded.
        if text in {"", ".", ".."} or not text.isprintable():
            field = ".".join(tokens_of(output.pointer))
            why = f"mapping {self.label} needs a text or a whole number there for event type {change.event_type}"
            raise NotMapped(f"{field} can't stand in a path: {why}", field)
        return quote(text, safe="")

    def _by_outputs(self, outputs: tuple[Output, ...], change: ChangeContent) -> Encoded:
        values = [(output, self._value(change, output)) for output in outputs]
        given = [(output, value) for output, value in values if value is not MISSING]
        state = _body([(output, value) for output, value in given if output.is_of_state])
        return Encoded(_compact(_body(given)), self.label, payload_hash({"by": self._by, "body": state}))

    def _by_code(self, code: Code, change: ChangeContent) -> Encoded:
        function = self._function(code)
        # What it makes of a change that nothing tells apart from others of the same state.
        state = self._called(function, code, replace(change, change_id=0, idempotency_key=""))
        state_hash = payload_hash({"by": self._by, "body": state.hex()})
        return Encoded(self._called(function, code, change), self.label, state_hash)

    def _function(self, code: Code) -> mapping_code.Encode:
        found = mapping_code.find(code.name)
        if isinstance(found, str):
            raise CodeMissing(f"mapping {self.label} needs the entry point {code.name}, and {found}")
        return found[0]

    def _called(self, function: mapping_code.Encode, code: Code, change: ChangeContent) -> bytes:
        try:
            body: object = function(replace(change, payload=copy.deepcopy(change.payload)))
        except Exception as error:  # noqa: BLE001 - its text may have a value; its field is a name
            named = getattr(error, "field", None)
            field = named if isinstance(named, str) and _FIELD.fullmatch(named) else "payload"
            why = f"raises {type(error).__name__}"
        else:
            if isinstance(body, bytes):
                return body
            field, why = "payload", "gives no bytes"
        why = f"the code {code.name} of mapping {self.label} {why} for event type {change.event_type}"
        raise NotMapped(f"{field} can't be mapped: {why}", field)

    def rule(self, event_type: str, entity_type: str) -> Rule:
        """The most special one for them. Raises NotMapped if there is none."""
        for key in (f"{event_type}/{entity_type}", event_type, f"{ANY}/{entity_type}", ANY):
            if key in self.rules:
                return self.rules[key]
        why = f"has no rule for event type {event_type} of {entity_type}"
        raise NotMapped(f"mapping {self.label} {why}", "event_type")

    def _value(self, change: ChangeContent, output: Output) -> Any:
        if not output.pointer:
            return output.constant
        source, *rest = tokens_of(output.pointer)
        found = getattr(change, source)
        for token in rest:
            found = step(found, token)
        if found is MISSING and output.required:
            field = ".".join((source, *rest))
            why = f"mapping {self.label} needs {output.pointer} for event type {change.event_type}"
            raise NotMapped(f"{field} is missing: {why}", field)
        return found


OLDHOST = HostMapping(ENVELOPE, "1", {ANY: None})


def _body_rule(rule: Rule) -> BodyRule:
    return rule.body if isinstance(rule, Routed) else rule


def payload_hash(payload: Mapping[str, Any]) -> bytes:
    """Equal for equal JSON values."""
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).digest()


def too_large(body: bytes) -> bool:
    """Whether OldHost would reject it as malformed (over 64 KiB)."""
    return len(body) > HOST_BODY_BYTES_MAX


@lru_cache(maxsize=1024)
def tokens_of(pointer: str) -> tuple[str, ...]:
    """The names of a JSON pointer that begins with `/`."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def step(value: Any, token: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(token, MISSING)
    if isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
        return value[int(token)]
    return MISSING


def _body(values: list[tuple[Output, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for output, value in values:
        *parents, name = output.place
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return body


def _compact(operation: dict[str, Any]) -> bytes:
    return json.dumps(operation, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _envelope(change: ChangeContent) -> bytes:
    """The operation as docs/protocol.md shows it.

    For a unit the payload's fields stand at the top level too; they never overwrite the page's own names.
    """
    operation: dict[str, Any] = {
        "entity_type": change.entity_type,
        "entity_id": change.entity_id,
        "event_type": change.event_type,
        "payload": change.payload,
        "event_id": change.change_id,
        "idempotency_key": change.idempotency_key,
    }
    if change.entity_type == UNIT:
        lifted = {name: value for name, value in change.payload.items() if name not in RESERVED_NAMES}
        operation |= {"unit_id": change.entity_id, **lifted}
    return _compact(operation)


# ------------------------------------------------------------------------------------------------------------ as stored


def to_text(mapping: HostMapping) -> str:
    """The mapping as the database keeps it; `from_text` reads it."""
    named = {"name": mapping.name, "version": mapping.version}
    return json.dumps(named | {"rules": _rules(mapping.rules)}, separators=(",", ":"))


@lru_cache(maxsize=64)
def from_text(text: str) -> HostMapping:
    """The mapping that `to_text` wrote."""
    read = json.loads(text)
    rules: dict[str, Rule] = {}
    for key, rule in read["rules"].items():
        routed = isinstance(rule, dict) and "path" in rule
        rules[key] = Routed(rule["method"], rule["path"], _read(rule["body"])) if routed else _read(rule)
    return HostMapping(read["name"], read["version"], rules)


def _read(rule: Any) -> BodyRule:
    if isinstance(rule, dict):
        return Code(**rule)
    return None if rule is None else tuple(Output(tuple(place), *rest) for place, *rest in rule)


def version_of(rules: Mapping[str, Rule]) -> str:
    """A version by the rules' content: a short hash."""
    return hashlib.sha256(json.dumps(_rules(rules)).encode()).hexdigest()[:12]


def _rules(rules: Mapping[str, Rule]) -> dict[str, Any]:
    return {key: _rule(rule) for key, rule in rules.items()}


def _rule(rule: Rule) -> Any:
    if isinstance(rule, Routed):
        return {"method": rule.method, "path": rule.path, "body": _rule(rule.body)}
    if isinstance(rule, Code):
        return {"name": rule.name, "package": rule.package}
    return rule and [[output.place, output.pointer, output.constant, output.required] for output in rule]
