"""What the policy knows of a change: its place in the order, its class, its key. Never its payload.

The change id gives the order: the database assigns it under the entity's row lock, so that a larger id of the same
entity is a newer change (invariant I4). All instants here are whole milliseconds since 1970.
"""

# Annotations are values here, not text; see workflows/messages.py.
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from oldhost_sync.policy.limits import ID_LENGTH_MAX, NAME_PATTERN

_new = tuple.__new__


class PriorityClass(StrEnum):
    """The three classes of change (docs/glossary.md)."""

    EMERGENCY = "EMERGENCY"
    TXN = "TXN"
    LWW = "LWW"


class Outcome(StrEnum):
    """The recorded fate of a change; each accepted change ends with exactly one (invariant I5)."""

    APPLIED = "APPLIED"
    SUPERSEDED = "SUPERSEDED"
    NO_OP = "NO_OP"
    STALE = "STALE"
    DEAD = "DEAD"
    DISCARDED = "DISCARDED"
    WITHDRAWN = "WITHDRAWN"


class EntityKey(NamedTuple):
    """The thing a change is about; operations of one entity keep their order."""

    entity_type: str
    entity_id: str


class CoalescingKey(NamedTuple):
    """What LWW changes must share to replace one another (trap 9: the event type is part of it)."""

    entity_type: str
    entity_id: str
    event_type: str


class _Ref(NamedTuple):
    change_id: int
    priority_class: PriorityClass
    entity_type: str
    entity_id: str
    event_type: str
    accepted_at_ms: int
    property_id: str

    # Computed once: they are the keys of most of the machine's structures.
    entity: EntityKey
    key: CoalescingKey


class ChangeRef(_Ref):
    """One change as all but the store see it: everything that decides when it is sent, but not its payload.
    `property_id`: its unit's property when the writer received it; empty: none, or not known.

    A tuple, which is quick to make: a writer that takes over 50,000 changes makes them all in one task.
    """

    __slots__ = ()

    def __new__(
        cls,
        change_id: int,
        priority_class: PriorityClass,
        entity_type: str,
        entity_id: str,
        event_type: str,
        accepted_at_ms: int,
        property_id: str = "",
    ) -> Self:
        entity = _new(EntityKey, (entity_type, entity_id))
        key = _new(CoalescingKey, (entity_type, entity_id, event_type))
        names = (entity_type, entity_id, event_type)
        return _new(cls, (change_id, priority_class, *names, accepted_at_ms, property_id, entity, key))

    def __getnewargs__(self) -> tuple[int, PriorityClass, str, str, str, int, str]:
        return self[:7]


# The `outcome` of a change that has no fate yet.
BOUND = "BOUND"  # it has a nonce, is in doubt, and must be sent first
WAITING = "WAITING"  # it has no nonce and waits as before
HELD = "HELD"  # it has no nonce and waits behind a dead letter of its entity


@dataclass
class ChangeResult:
    """What a send, an opening or a reservation reports of one change: `outcome` is its fate (an Outcome's name), or
    BOUND, WAITING or HELD. `unproven`: no answer of OldHost proves that fate (APPLIED: unconfirmed; DEAD: unsure).
    """

    change_id: int
    outcome: str
    nonce: int | None = None
    error: str | None = None
    unproven: bool = False


# A change ref in wire format: [change_id, class, entity_type, entity_id, event_type, accepted_at_ms, property_id].
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
        ref.property_id,
    ]


def from_wire(item: Sequence[Any]) -> ChangeRef:
    """Read one ref. Raises ValueError if it is invalid: if the outbox could not have recorded such a change. A property
    that can be none counts as unknown: it only decides about turns.
    """
    if type(item) not in _LISTS or len(item) != 7:
        raise ValueError("not a change ref")
    change_id, priority_class, entity_type, entity_id, event_type, accepted_at_ms, property_id = item
    if not _is_within(change_id, 1, CHANGE_ID_MAX) or not _is_within(accepted_at_ms, 0, AT_MS_MAX):
        raise ValueError("a change ref's numbers are out of range")
    if not type(priority_class) is type(entity_type) is type(entity_id) is type(event_type) is str:
        raise ValueError("a change ref's names are not all text")
    if not _NAME.fullmatch(entity_type) or not _NAME.fullmatch(event_type):
        raise ValueError("a change ref's types are not valid names")
    if not _is_id(entity_id):
        raise ValueError("a change ref's entity id is empty, too long or unprintable")
    cls = PriorityClass(priority_class)
    if type(property_id) is not str or not _is_id(property_id):
        property_id = ""
    return ChangeRef(change_id, cls, entity_type, entity_id, event_type, accepted_at_ms, property_id)


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
