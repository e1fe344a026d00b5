"""A file of changes, checked line by line before any of it is recorded. Each refused line has its reason."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Engine

from oldhost_sync.store.errors import InvalidChange
from oldhost_sync.store.intake.submitted_keys import known_hashes
from oldhost_sync.store.intake.validation import Acceptable, accept
from oldhost_sync.store.transactions import run_in_transaction

REQUIRED = ("entity_type", "entity_id", "event_type", "payload")
FIELDS = (*REQUIRED, "idempotency_key", "occurred_at", "not_before")


@dataclass(frozen=True, slots=True)
class FileLine:
    """One valid line."""

    number: int
    raw: bytes
    change: Acceptable


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """One line that will not be recorded, and why."""

    line: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class Checked:
    """`total` counts the lines that are not empty."""

    lines: list[FileLine] = field(default_factory=list)
    refusals: list[RefusedLine] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.lines) + len(self.refusals)

    def refuse(self, line: FileLine, reason: str) -> None:
        """Move a line from the valid to the refused ones."""
        self.lines.remove(line)
        self.refusals.append(RefusedLine(line.number, reason, line.raw))
        self.refusals.sort(key=lambda refusal: refusal.line)


Track = Callable[[Sequence[tuple[int, bytes]]], Iterable[tuple[int, bytes]]]


def check(host: str, content: bytes, track: Track = iter) -> Checked:
    """Every line of the file, valid or refused. `track` shows progress."""
    prefix = f"file:{hashlib.sha256(content).hexdigest()[:32]}"
    numbered = [
        (number, raw)
        for number, raw in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), start=1)
        if raw.strip()
    ]
    checked = Checked()
    seen: dict[str, FileLine] = {}
    for number, raw in track(numbered):
        try:
            line = _check_line(host, number, raw, f"{prefix}:{number}")
        except InvalidChange as error:
            checked.refusals.append(RefusedLine(number, str(error), raw))
            continue
        first = seen.setdefault(line.change.idempotency_key, line)
        if first.change.request_hash == line.change.request_hash:
            checked.lines.append(line)
        else:
            reason = f"line {first.number} has the same idempotency_key and is another change"
            checked.refusals.append(RefusedLine(number, reason, raw))
    return checked


def check_one(host: str, change: Mapping[str, Any]) -> FileLine:
    """One change by itself; InvalidChange says what is wrong."""
    return _check_change(host, 1, b"", change, None)


def check_known_keys(engine: Engine, host: str, checked: Checked) -> Checked:
    """Refuse the lines whose key the database has for another change. Only keys given in the file can be there."""
    known = run_in_transaction(
        engine,
        lambda connection: known_hashes(connection, host, [line.change.idempotency_key for line in checked.lines]),
    )
    kept = Checked(refusals=list(checked.refusals))
    for line in checked.lines:
        if known.get(line.change.idempotency_key, line.change.request_hash) == line.change.request_hash:
            kept.lines.append(line)
        else:
            reason = "its idempotency_key was used for another change; use a new key for a new change"
            kept.refusals.append(RefusedLine(line.number, reason, line.raw))
    kept.refusals.sort(key=lambda refusal: refusal.line)
    return kept


def read_json(text: str | bytes) -> Any:
    """JSON as the API reads it: no duplicate names, no NaN; InvalidChange says where it is wrong."""
    try:
        text = text.decode() if isinstance(text, bytes) else text  # json itself would guess the encoding
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise InvalidChange("it is not UTF-8") from None
    except RecursionError:
        raise InvalidChange("it nests too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidChange(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:  # json has no position for this: Python's limit on the digits of an integer
        raise InvalidChange("it has a number with too many digits") from None


def _check_line(host: str, number: int, raw: bytes, fallback_key: str) -> FileLine:
    value = read_json(raw)
    if not isinstance(value, dict):
        raise InvalidChange("it is not a JSON object")
    return _check_change(host, number, raw, value, fallback_key)


def _check_change(host: str, number: int, raw: bytes, value: Mapping[str, Any], fallback_key: str | None) -> FileLine:
    unknown = [name for name in value if name not in FIELDS]
    if unknown:
        raise InvalidChange(f"it has unknown fields: {', '.join(unknown[:5])}; known are {', '.join(FIELDS)}")
    missing = [name for name in REQUIRED if value.get(name) is None]
    if missing:
        raise InvalidChange(f"it lacks {', '.join(missing)}")
    change = {name: value[name] for name in REQUIRED}
    change |= {name: _time(name, value.get(name)) for name in ("occurred_at", "not_before")}
    key = value.get("idempotency_key")
    accepted = accept(host=host, source="cli", idempotency_key=fallback_key if key is None else key, **change)
    return FileLine(number, raw, accepted)


def _time(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise InvalidChange(f"{name} must be a time with a time zone, such as 2026-05-01T12:00:00Z")
    return moment


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise InvalidChange(f"it has the name {name!r} twice")
        made[name] = value
    return made


def _no_constant(name: str) -> Any:
    raise InvalidChange(f"it has {name}, which is not JSON")
