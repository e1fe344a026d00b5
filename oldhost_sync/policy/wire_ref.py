"""A change ref in wire format: [change_id, class, entity_type, entity_id, event_type, accepted_at_ms].

The properties are in a second list, as long as that of the refs, or empty: workers and runs of earlier releases read
refs of exactly this form.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.limits import ID_LENGTH_MAX, NAME_PATTERN

WireRef = list[Any]

# What the database's BIGINT and DATETIME can hold.
CHANGE_ID_MAX = 2**63 - 1
AT_MS_MAX = 253_402_300_799_999

_NAME = re.compile(NAME_PATTERN)
# Control characters, which no screen shows, and lone surrogates, which UTF-8 can't encode, so that no log, database or
# error text can contain them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LINES = frozenset("\n\t")
# Exact types, not `isinstance`: in the sandbox of workflows that takes 2 µs, and a replay may read 100,000 refs.
_LISTS = (list, tuple)


def to_wire(ref: ChangeRef) -> WireRef:
    return [
        ref.change_id,
        ref.priority_class.value,
        ref.entity_type,
        ref.entity_id,
        ref.event_type,
        ref.accepted_at_ms,
    ]


def properties_of(refs: Sequence[ChangeRef]) -> list[str]:
    """The second list for these refs: the property of each, or an empty list where none is known."""
    return [ref.property_id for ref in refs] if any(ref.property_id for ref in refs) else []


def with_properties(items: Sequence[WireRef], properties: object) -> Iterator[tuple[WireRef, str]]:
    """Each ref with its property from the second list: "" where it is missing or invalid."""
    given: Iterable[object] = properties if isinstance(properties, list) else ()
    fitting = (one if type(one) is str and _is_id(one) else "" for one in given)
    return zip(items, chain(fitting, repeat("")), strict=False)


def from_wire(item: Sequence[Any], property_id: str = "") -> ChangeRef:
    """Read one ref. Raises ValueError if it is invalid: if the outbox could not have recorded such a change."""
    if type(item) not in _LISTS or len(item) != 6:
        raise ValueError("not a change ref")
    change_id, priority_class, entity_type, entity_id, event_type, accepted_at_ms = item
    if not _is_within(change_id, 1, CHANGE_ID_MAX) or not _is_within(accepted_at_ms, 0, AT_MS_MAX):
        raise ValueError("a change ref's numbers are out of range")
    if not type(priority_class) is type(entity_type) is type(entity_id) is type(event_type) is str:
        raise ValueError("a change ref's names are not all text")
    if not _NAME.fullmatch(entity_type) or not _NAME.fullmatch(event_type):
        raise ValueError("a change ref's types are not valid names")
    if not _is_id(entity_id):
        raise ValueError("a change ref's entity id is empty, too long or unprintable")
    cls = PriorityClass(priority_class)
    return ChangeRef(change_id, cls, entity_type, entity_id, event_type, accepted_at_ms, property_id)


def all_from_wire(items: Sequence[WireRef], properties: Sequence[str] = ()) -> Iterator[ChangeRef]:
    """Read refs, each with its property from the second list. Raises ValueError at the first invalid one."""
    return (from_wire(item, property_id) for item, property_id in with_properties(items, properties))


def why_unprintable(text: str, *, lines: bool = False) -> str:
    """Why `text` can't be stored and displayed (a text that can); empty when it can. `lines`: line ends and tabs are
    allowed.

    The result is the same on every Python version, unlike `str.isprintable`: any worker may replay a run.
    """
    for found in _UNPRINTABLE.finditer(text):
        if not (lines and found[0] in _LINES):
            kind = "half a character (a lone surrogate)" if found[0] > "\ud7ff" else "a control character"
            return f"U+{ord(found[0]):04X} in it is {kind}"
    return ""


def _is_id(text: str) -> bool:
    return 0 < len(text) <= ID_LENGTH_MAX and not why_unprintable(text)


def _is_within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
