"""A file of changes, checked line by line before any of it is recorded. Each refused line has its reason."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Engine

from oldhost_sync.fields import json_text
from oldhost_sync.store.errors import InvalidChange
from oldhost_sync.store.intake.signals import known_hashes
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields, refusing
from oldhost_sync.store.transactions import run_in_transaction


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
    """JSON as the API reads it; InvalidChange says where it is wrong."""
    with refusing():
        return json_text.read_json(text)


def _check_line(host: str, number: int, raw: bytes, fallback_key: str) -> FileLine:
    return _check_change(host, number, raw, read_json(raw), fallback_key)


def _check_change(host: str, number: int, raw: bytes, value: object, fallback_key: str | None) -> FileLine:
    given = change_fields(value)
    if given["idempotency_key"] is None:
        given["idempotency_key"] = fallback_key
    return FileLine(number, raw, accept(host=host, source="cli", **given))
