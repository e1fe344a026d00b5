"""What a host makes of a call, before a dialect puts it into bytes. Numbers are as the client counts them.

`expected` None: the host does not tell. `retry_after`: seconds, 900.0 as 900.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Applied:
    nonce: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """`used`: whether the number is; None: the host does not say."""

    nonce: int
    reason: str
    expected: int | None
    used: bool | None


@dataclass(frozen=True, slots=True)
class Gap:
    nonce: int
    expected: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The number was used before. `retry_after` None: that is not punished."""

    nonce: int
    expected: int | None
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Banned:
    retry_after: float


@dataclass(frozen=True, slots=True)
class Busy:
    retry_after: float


@dataclass(frozen=True, slots=True)
class Malformed:
    reason: str


@dataclass(frozen=True, slots=True)
class Expected:
    expected: int


@dataclass(frozen=True, slots=True)
class Outcome:
    fate: Literal["applied", "rejected", "not_taken", "unknown"]
    nonce: int | None = None
    key: str | None = None
    reason: str | None = None
    used: bool | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """`incarnation`: of this start of the host; empty: it does not tell."""

    expected: int | None
    incarnation: str


Verdict: TypeAlias = Applied | Rejected | Gap | Replay | Banned | Busy | Malformed | Expected | Outcome | Ready
