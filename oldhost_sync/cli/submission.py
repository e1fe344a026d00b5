"""`submit`: one change by options, or a file of them, one JSON object a line.

A file is checked as a whole before anything is recorded: shapes, limits, and keys that belong to another change. If any
line is refused, nothing is recorded, unless `--valid-only` is given. Then the lines are recorded in batches. A line
without a key gets one made of the file's content and the line's number, so an interrupted run can simply be repeated.
"""

from __future__ import annotations

import codecs
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy.engine import Engine

from oldhost_sync.cli.arguments import entity_of
from oldhost_sync.cli.output import AsJson, console, error_console, print_json, rows
from oldhost_sync.environment import in_database, settings
from oldhost_sync.fields import json_text
from oldhost_sync.policy.limits import BATCH_CHANGES_MAX
from oldhost_sync.settings import Settings
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.errors import EntityRefused, InvalidChange, StoreError
from oldhost_sync.store.intake.batch_recorder import Result
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_recorder import RecordedChange, known_hashes
from oldhost_sync.store.intake.rules import DEFAULT_RULES, rules_of
from oldhost_sync.store.intake.validation import Acceptable, accept, change_fields, refusing
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.user_errors import FAILED, WRONG, CliError, print_error

FILE_BYTES_MAX = 512 * 1024 * 1024  # it is in memory while it is checked
LOCKED_SECONDS_MAX = 20.0  # how long to wait for entities that an application has locked
REFUSALS_SHOWN = 50  # on the screen; --json and --refused-to have them all


def add_to(app: typer.Typer) -> None:
    app.command()(submit)


def submit(
    file: Annotated[Path | None, typer.Argument(help="One JSON object a line; - reads standard input.")] = None,
    entity: Annotated[str | None, typer.Option(help="One change: a unit's id, or type/id.")] = None,
    event: Annotated[str | None, typer.Option(help="One change: its event type.", autocompletion=event_types)] = None,
    payload: Annotated[str | None, typer.Option(help="One change: its payload, a JSON object.")] = None,
    key: Annotated[str | None, typer.Option(help="One change: its idempotency key; generated when not given.")] = None,
    occurred_at: Annotated[str | None, typer.Option(help="One change: when it happened, with its time zone.")] = None,
    not_before: Annotated[str | None, typer.Option(help="One change: do not record it before this time.")] = None,
    valid_only: Annotated[
        bool, typer.Option("--valid-only", help="File: record what is valid, refuse the rest.")
    ] = False,
    refused_to: Annotated[
        Path | None, typer.Option(help="File: write the refused lines there, to be corrected.")
    ] = None,
    check_only: Annotated[bool, typer.Option("--check", help="Only check; record nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit one change, or a file of changes. Exit code 1 when anything was refused."""
    change = {
        "event_type": event, "payload": payload, "idempotency_key": key,
        "occurred_at": occurred_at, "not_before": not_before,
    }  # fmt: skip
    if file is not None and (entity or any(change.values())):
        raise CliError("give either a file, or one change by --entity, --event and --payload.", WRONG)
    config = settings()
    engine = create_engine(config.need_database_url(), pool_size=2)
    try:
        if file is not None:
            _submit_file(config, engine, _read(file), SubmissionOptions(valid_only, check_only, refused_to, as_json))
        elif entity is None or event is None or payload is None:
            raise CliError("give a file, or one change by --entity, --event and --payload.", WRONG)
        else:
            _submit_one(
                config, engine, entity, {name: value for name, value in change.items() if value}, check_only, as_json
            )
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """How a file is to be treated and reported."""

    valid_only: bool
    check_only: bool
    refused_to: Path | None
    as_json: bool


def event_types(incomplete: str) -> list[str]:
    """Shell completion: the event types that begin with `incomplete` and have a rule; without a database, the default
    rules.
    """
    try:
        config = settings()
        known = list(in_database(config, lambda connection: rules_of(connection, config.host)))
    except Exception:  # noqa: BLE001 - an error has no place in the middle of a command line
        known = sorted(DEFAULT_RULES)
    return [event_type for event_type in known if event_type.startswith(incomplete)]


# ----------------------------------------------------------------------------------------------------------- one change


def _submit_one(
    config: Settings, engine: Engine, entity: str, given: dict[str, Any], check_only: bool, as_json: bool
) -> None:
    entity_type, entity_id = entity_of(entity)
    try:
        given["payload"] = read_json(given["payload"])
        line = check_one(config.host, {"entity_type": entity_type, "entity_id": entity_id, **given})
        if check_only:
            console().print("It is valid; nothing was recorded.")
            return
        check_database(engine, (config.host,))
        (recorded,) = submit_changes(engine, config.host, [line.change], seconds_max=LOCKED_SECONDS_MAX)
        if isinstance(recorded, StoreError):
            raise recorded
    except InvalidChange as error:
        raise CliError(f"refused: {error}. Nothing was recorded.") from None
    if as_json:
        shown = ("sync_status", "change_id", "idempotency_key", "duplicate")
        print_json({name: getattr(recorded, name) for name in shown})
        return
    again = ", recorded before" if recorded.duplicate else ""
    change = f": change {recorded.change_id}" if recorded.change_id else ""
    console().print(f"{recorded.sync_status}{again}{change}", markup=False)
    follow = f"oldhost-sync --host {config.host} change show {recorded.idempotency_key}"
    console().print(f"Follow it: {follow}", markup=False, style="dim", soft_wrap=True)


# --------------------------------------------------------------------------------------------------------------- a file


def _read(file: Path) -> bytes:
    if str(file) == "-":
        content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        try:
            with file.open("rb") as stream:
                content = stream.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise CliError(f"{file} can't be read: {error.strerror}.", WRONG) from None
    if len(content) > FILE_BYTES_MAX:
        raise CliError(f"the file is larger than {FILE_BYTES_MAX // 2**20} MiB: split it.", WRONG)
    return content


def _submit_file(config: Settings, engine: Engine, content: bytes, wanted: SubmissionOptions) -> None:
    if wanted.refused_to is not None:
        _make_writable(wanted.refused_to)
    with _progress() as progress:
        checked = check(config.host, content, lambda lines: progress.track(lines, description="checking"))
        check_database(engine, (config.host,))
        checked = check_known_keys(engine, config.host, checked)
        record = not wanted.check_only and (wanted.valid_only or not checked.refusals)
        done = _record_all(config, engine, checked, progress) if record else []
    if wanted.refused_to is not None and checked.refusals:
        wanted.refused_to.write_bytes(b"".join(refusal.raw + b"\n" for refusal in checked.refusals))
    _report(checked, done if record else None, wanted)
    if checked.refusals:
        raise typer.Exit(FAILED)


def _make_writable(file: Path) -> None:
    """Checked before anything is recorded: later, refused lines that can't be written would be lost."""
    try:
        file.open("ab").close()
    except OSError as error:
        raise CliError(f"{file} can't be written: {error.strerror}. Nothing was recorded.", WRONG) from None


def _record_all(config: Settings, engine: Engine, checked: Checked, progress: Progress) -> list[RecordedChange]:
    """Record the valid lines. A line whose key was taken after the check is refused, with the lines of the same entity
    in its batch.
    """
    done: list[RecordedChange] = []
    lines = list(checked.lines)
    task = progress.add_task("recording", total=len(lines))
    for start in range(0, len(lines), BATCH_CHANGES_MAX):
        part = lines[start : start + BATCH_CHANGES_MAX]
        results = _submit(config, engine, part, len(done))
        done += [result for result in results if isinstance(result, RecordedChange)]
        for line, result in zip(part, results, strict=True):
            if isinstance(result, InvalidChange):
                checked.refuse(line, _reason(result, part))
            elif isinstance(result, StoreError):
                _print_stop(line, len(done))
                raise result
        progress.advance(task, len(part))
    return done


def _submit(config: Settings, engine: Engine, part: Sequence[FileLine], done: int) -> list[Result]:
    try:
        changes = [line.change for line in part]
        return submit_changes(engine, config.host, changes, seconds_max=LOCKED_SECONDS_MAX)
    except Exception:
        _print_stop(part[0], done)
        raise


def _print_stop(line: FileLine, done: int) -> None:
    print_error(
        f"stopped at line {line.number}; {done} lines are recorded. Repeat the command: none of them is recorded twice."
    )


def _reason(refused: InvalidChange, part: Sequence[FileLine]) -> str:
    if isinstance(refused, EntityRefused):
        return f"line {part[refused.because_of].number} is of the same entity and was refused"
    return str(refused)


def _report(checked: Checked, recorded: list[RecordedChange] | None, wanted: SubmissionOptions) -> None:
    """`recorded` is None when nothing was to be recorded."""
    done = recorded or []
    new = sum(not change.duplicate for change in done)
    summary = {
        "lines": checked.total,
        "recorded": new,
        "recorded_before": len(done) - new,
        "refused": [{"line": refusal.line, "reason": refusal.reason} for refusal in checked.refusals],
    }
    if wanted.as_json:
        print_json(summary)
        return
    out = console()
    if checked.refusals:
        shown = [(refusal.line, refusal.reason) for refusal in checked.refusals[:REFUSALS_SHOWN]]
        out.print(rows("Refused", ("line", "why"), shown))
        if len(checked.refusals) > len(shown):
            out.print(f"… and {len(checked.refusals) - len(shown)} more; --json shows them all.")
    what = "Checked" if wanted.check_only else "Submitted"
    out.print(
        f"{what}: {checked.total} lines, {new} recorded, {len(done) - new} recorded before, "
        f"{len(checked.refusals)} refused."
    )
    if checked.refusals and recorded is None and not wanted.check_only:
        out.print("Nothing was recorded: correct these lines, or record the others with --valid-only.")


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = error_console()
    return Progress(*columns, console=out, transient=True, disable=not out.is_terminal)


# ------------------------------------------------------------------------------------------------------ checking a file

# Line by line, before any of it is recorded. Each refused line has its reason.


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
    fields = change_fields(value)
    if fields["idempotency_key"] is None:
        fields["idempotency_key"] = fallback_key
    return FileLine(number, raw, accept(host=host, source="cli", **fields))
