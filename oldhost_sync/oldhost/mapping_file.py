"""The file of a mapping (TOML): checked as a whole, and every mistake is named with its line and key.

name = "rooms"                       # with the version it is stored beside each operation's bytes
version = "3"                        # may be absent: then a hash of the rules
[rules.unit_status_changed]          # or "event/entity type", or "*" for every other event type
fields = { unit_id = "/entity_id", status = "/payload/status", "/by/key" = "/idempotency_key" }
constants = { system = "front desk" }
optional = ["status"]                # left out where the change has none; a change without another one is refused
method = "PUT"                       # with `path`, for a host that is reached by HTTP
path = "/units/{/entity_id}/status"  # {number}: the operation's number
[rules."*"]
preset = "oldhost"                   # the envelope of docs/protocol.md
[rules.invoice_created]
code = "invoice"                     # an entry point (`mapping_code`)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oldhost_sync.drivers import mapping_code
from oldhost_sync.drivers.mapping import (
    ENVELOPE,
    HOLE,
    NUMBER,
    OLDHOST,
    PATH_LENGTH_MAX,
    POINTER,
    SOURCES,
    BodyRule,
    Code,
    HostMapping,
    Output,
    Routed,
    Rule,
    tokens_of,
    version_of,
)
from oldhost_sync.fields.json_text import check_json
from oldhost_sync.fields.scalar import InvalidField
from oldhost_sync.fields.toml_file import Key, Mistake, read_toml
from oldhost_sync.policy.limits import NAME_PATTERN

# More is a mistake: a body has 64 KiB, and an entity some dozen event types.
FILE_BYTES_MAX = 64 * 1024
RULES_MAX = 200
OUTPUTS_MAX = 100
DEPTH_MAX = 8
CONSTANT_BYTES_MAX = 4 * 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_KEY = re.compile(rf"(\*|{NAME_PATTERN})(/{NAME_PATTERN})?")
METHODS = ("POST", "PUT", "PATCH", "DELETE")
_PATH = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}|\{[^{}]+\})+)+")


def read_mapping(path: Path) -> HostMapping:
    """ValueError tells all that is wrong."""
    file = read_toml(path, FILE_BYTES_MAX)
    content = file.content
    file.refuse(_mistakes(content))
    rules = {key: _rule(rule) for key, rule in content["rules"].items()}
    return HostMapping(content["name"], content.get("version", version_of(rules)), rules)


def _mistakes(content: dict[str, Any]) -> Iterator[Mistake]:
    yield from (((key,), "is not a key of this file") for key in content.keys() - {"name", "version", "rules"})
    for key in ("name", "version"):
        value = content.get(key, None if key == "name" else "1")
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            yield (key,), "must be text of 1 to 32 letters, digits, or . _ -"
    if content.get("name") == ENVELOPE:
        yield ("name",), f"{OLDHOST.name!r} is the preset's name"
    rules = content.get("rules")
    if not isinstance(rules, dict) or not 1 <= len(rules) <= RULES_MAX:
        yield ("rules",), f"must be a table of 1 to {RULES_MAX} rules"
        return
    for key, rule in rules.items():
        place = ("rules", key)
        if not _KEY.fullmatch(key):
            yield place, "must be an event type, * or event type/entity type"
        if isinstance(rule, dict):
            yield from ((place + tuple(inner), why) for inner, why in _mistakes_of_rule(rule))
        else:
            yield place, "must be a table"


def _mistakes_of_rule(rule: dict[str, Any]) -> Iterator[Mistake]:
    whole = next((key for key in ("preset", "code") if key in rule), None)
    allowed = {whole} if whole else {"fields", "constants", "optional"}
    yield from (((key,), "is not a key of this rule") for key in rule.keys() - allowed - {"method", "path"})
    yield from _mistakes_of_place(rule)
    if whole:
        if why := _wrong_preset(rule[whole]) if whole == "preset" else _wrong_code(rule[whole]):
            yield (whole,), why
        return
    tables = {key: rule.get(key, {}) for key in ("fields", "constants")}
    wrong = [key for key, table in tables.items() if not isinstance(table, dict)]
    yield from (((key,), "must be a table") for key in wrong)
    if wrong:
        return
    names = [(key, name) for key, table in tables.items() for name in table]
    if not 1 <= len(names) <= OUTPUTS_MAX:
        yield (), f"must have 1 to {OUTPUTS_MAX} fields and constants"
    yield from _mistakes_of_names(names)
    for name, pointer in tables["fields"].items():
        if why := _wrong_pointer(pointer):
            yield ("fields", name), why
    for name, value in tables["constants"].items():
        if why := _wrong_constant(value):
            yield ("constants", name), why
    optional = rule.get("optional", [])
    if not isinstance(optional, list) or any(name not in tables["fields"] for name in optional):
        yield ("optional",), "must be a list of names of `fields`"


def _mistakes_of_place(rule: dict[str, Any]) -> Iterator[Mistake]:
    if rule.get("method", "POST") not in METHODS:
        yield ("method",), f"must be one of {', '.join(METHODS)}"
    elif "method" in rule and "path" not in rule:
        yield ("method",), "is given without a path"
    if "path" not in rule:
        return
    path = rule["path"]
    is_path = isinstance(path, str) and len(path) <= PATH_LENGTH_MAX and _PATH.fullmatch(path)
    if not is_path or {".", ".."} & set(path.split("/")):
        yield ("path",), "must be a path such as /units/{/entity_id}/status, with what URLs allow, and no '..'"
        return
    for hole in HOLE.findall(path):
        if hole != NUMBER and (why := _wrong_pointer(hole)):
            yield ("path",), f"what is in braces {why}, or be {NUMBER}"


def _wrong_preset(preset: object) -> str:
    return "" if preset == ENVELOPE else f"must be {ENVELOPE!r}"


def _wrong_code(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "must be the name of an entry point: 1 to 32 letters, digits, or . _ -"
    found = mapping_code.find(name)
    return f"is no entry point of {mapping_code.GROUP}: {found}" if isinstance(found, str) else ""


def _mistakes_of_names(names: list[tuple[str, str]]) -> Iterator[Mistake]:
    seen: dict[Key, str] = {}
    for key, name in names:
        place = _place(name)
        if not name or (name.startswith("/") and (not POINTER.fullmatch(name) or len(place) > DEPTH_MAX)):
            yield (key, name), f"must be a name, or a JSON pointer of at most {DEPTH_MAX} names"
        elif any(place[: len(other)] == other or other[: len(place)] == place for other in seen):
            yield (key, name), "has the place of another output"
        seen[place] = name


def _wrong_pointer(pointer: object) -> str:
    if not isinstance(pointer, str) or not POINTER.fullmatch(pointer):
        return "must be a JSON pointer into the change, such as /payload/status"
    source, *rest = tokens_of(pointer)
    if source not in SOURCES:
        return f"must begin with one of {', '.join('/' + each for each in SOURCES)}"
    if len(rest) > DEPTH_MAX:
        return f"has more than {DEPTH_MAX} names"
    return "" if not rest or source == "payload" else f"/{source} has no parts"


def _wrong_constant(value: object) -> str:
    try:
        check_json("it", value, DEPTH_MAX)
    except InvalidField as error:
        return str(error)
    return "" if len(json.dumps(value)) <= CONSTANT_BYTES_MAX else f"is over {CONSTANT_BYTES_MAX} bytes of JSON"


def _rule(rule: dict[str, Any]) -> Rule:
    body = _body_rule(rule)
    return Routed(rule.get("method", "POST"), rule["path"], body) if "path" in rule else body


def _body_rule(rule: dict[str, Any]) -> BodyRule:
    if "preset" in rule:
        return None
    if name := rule.get("code"):
        code = mapping_code.find(name)
        assert not isinstance(code, str)
        return Code(name, code[1])
    optional = rule.get("optional", [])
    found = [Output(_place(name), at, None, name not in optional) for name, at in rule.get("fields", {}).items()]
    return (*found, *(Output(_place(name), "", value) for name, value in rule.get("constants", {}).items()))


def _place(name: str) -> Key:
    return tokens_of(name) if name.startswith("/") else (name,)
