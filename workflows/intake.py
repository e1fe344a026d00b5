"""Intake: decodes what a message to the writer carried, safely, and gives it a key if it has none.

A signal has no answer and can't be refused, and an error in its handler would block the writer at that task for ever.
So nothing here raises, whatever the bytes: an unusable change is replaced by a sentence that says why, which is refused
visibly when it is recorded; an unreadable ref is counted. The key of a change is such that reading the same message
again gives the same key.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from oldhost_sync.fields.change import NO_OBJECT
from oldhost_sync.fields.json_text import read_json
from oldhost_sync.fields.scalar import InvalidField
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.limits import HOST_BODY_BYTES_MAX, PAYLOAD_DEPTH_MAX
from oldhost_sync.policy.tuning import WriterPolicy
from workflows.messages import WORKFLOW_ID_PREFIX, WriterInput, from_wire

# OldHost takes no larger change; a few of them must fit in one activity's input.
CHANGE_BYTES_MAX = HOST_BODY_BYTES_MAX
# The change, its payload, and the nesting that a payload may have; recording reports exactly what is too deep.
CHANGE_DEPTH_MAX = PAYLOAD_DEPTH_MAX + 8

PLAIN_JSON = b"json/plain"

# Not `isinstance`, which the SDK's sandbox makes some ten times slower: every value of every signal is checked.
JSON_TYPES = frozenset({str, int, float, bool, dict, list, type(None)})

MAY_BE_ZERO = ("debounce_ms", "max_wait_ms", "early_send_ms")
# A year: no sensible wait is longer. A timer beyond Temporal's limit (some hundreds of years) can't be set, which would
# block the writer for ever.
FIGURE_MAX = 366 * 86_400_000


def read_input(raw: RawValue, workflow_id: str) -> tuple[WriterInput, str]:
    """The workflow's argument, and what was wrong with it ("": nothing). None, null and {} are valid.

    The host in the workflow's id overrides the one in the argument: two writers of one host would take each other's
    session away.
    """
    given, problem = WriterInput(), ""
    if raw.payload.data:
        try:
            hint: Any = WriterInput | None
            given = workflow.payload_converter().from_payload(raw.payload, hint) or given
        except Exception as error:  # noqa: BLE001 - a converter may raise anything for unknown bytes
            problem = f"it can't be read ({type(error).__name__}); the writer continues with the state in the database"
    if given.policy is not None and not _is_policy(given.policy):
        given.policy, problem = None, "its policy has invalid numbers; the worker's settings are used"
    host = workflow_id.removeprefix(WORKFLOW_ID_PREFIX)
    if given.host not in ("", host):
        problem = f"it names the host {given.host[:64]!r}, but the workflow's id names {host!r}, which is used"
    given.host = host
    return given, problem


def read_change(raw: RawValue) -> dict[str, Any] | str:
    """The JSON object that arrived, or a sentence that says why it can't be used."""
    size = len(raw.payload.data)
    if size > CHANGE_BYTES_MAX:
        return f"too large: {size} bytes, at most {CHANGE_BYTES_MAX} are taken"
    try:
        value = read_json(raw.payload.data) if raw.payload.metadata.get("encoding") == PLAIN_JSON else _value(raw)
    except InvalidField as error:
        return str(error)
    return why_unfit(value) or (value if isinstance(value, dict) else NO_OBJECT)


def change_of_update(raw: RawValue) -> dict[str, Any]:
    """As `read_change`, for an update, which can be refused: raises ValueError."""
    change = read_change(raw)
    if isinstance(change, str):
        raise ValueError(change)  # noqa: TRY004 - the sentence says why
    return change


def why_unfit(value: Any) -> str:
    """Why a value can't be carried as JSON; empty when it can."""
    for part, depth in _parts(value):
        if depth > CHANGE_DEPTH_MAX:
            return f"payload nests deeper than {PAYLOAD_DEPTH_MAX} levels"
        if type(part) not in JSON_TYPES:
            return f"not JSON: it holds a {type(part).__name__}"
    return ""


def read_batch(raw: RawValue) -> tuple[list[ChangeRef], list[int], int]:
    """The refs that arrived, the ids of withdrawn changes, and the number of items that are neither."""
    value = _value(raw)
    items = value.get("refs") if isinstance(value, dict) else None
    ids = value.get("withdrawn", []) if isinstance(value, dict) else None
    if not isinstance(items, list) or not isinstance(ids, list):
        return [], [], 1
    refs: list[ChangeRef] = []
    withdrawn = [each for each in ids if type(each) is int]
    unreadable = len(ids) - len(withdrawn)
    for item in items:
        try:
            refs.append(from_wire(item))
        except ValueError:
            unreadable += 1
    return refs, withdrawn, unreadable


def read_policy(raw: RawValue) -> WriterPolicy | None:
    """The policy that arrived, or None if a number in it is out of range (only those of MAY_BE_ZERO may be 0)."""
    try:
        policy: WriterPolicy = workflow.payload_converter().from_payload(raw.payload, WriterPolicy)
        return policy if _is_policy(policy) else None
    except Exception:  # noqa: BLE001 - a converter may raise anything for unknown bytes
        return None


def read_release(raw: RawValue) -> int | None:
    """The release of the decisions that arrived, or None."""
    value = _value(raw)
    return value if type(value) is int else None


def read_task_queue(raw: RawValue) -> str | None:
    """The task queue that arrived, or None."""
    value = _value(raw)
    return value if type(value) is str and raw.payload.data else None


def _is_policy(policy: WriterPolicy) -> bool:
    return all(_is_figure(figure, name not in MAY_BE_ZERO) for name, figure in vars(policy).items())


def _is_figure(value: object, least: int) -> bool:
    return isinstance(value, int) and least <= value <= FIGURE_MAX


def _value(raw: RawValue) -> Any:
    converter = workflow.payload_converter() if workflow.in_workflow() else DataConverter.default.payload_converter
    try:
        return converter.from_payload(raw.payload)
    except Exception as error:  # noqa: BLE001 - a converter may raise anything for unknown bytes
        return f"not readable as JSON ({type(error).__name__})"


def _parts(value: Any) -> Iterator[tuple[Any, int]]:
    """Every nested value with its depth. No recursion, since a sender could exceed its limit."""
    rest = [(value, 1)]
    while rest:
        part, depth = rest.pop()
        yield part, depth
        if isinstance(part, dict | list):
            rest += [(inner, depth + 1) for inner in (part.values() if isinstance(part, dict) else part)]


def signal_key(original_run_id: str, place: int, data: bytes) -> str:
    """The key of a submission that arrived by signal: `place` counts the run's `submit_change` signals from 1, `data`
    is the signal's content.

    The digest distinguishes a signal that is in another one's place after a reset that left signals out.
    """
    return f"signal/{original_run_id}/{place}/{sha256(data).hexdigest()[:12]}"


def update_key(update_id: str, change: object) -> str:
    """The key of a keyless change that arrived by update: a repeated update, in any run, is the same change, whatever
    trace it comes from.
    """
    if isinstance(change, dict):
        change = {name: value for name, value in change.items() if name != "traceparent"}
    asked = f"{update_id}\n{change!r}".encode(errors="surrogatepass")
    return f"update/{sha256(asked).hexdigest()[:40]}"
