"""What the host's port needs of a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oldhost_simulator.call import Call
from oldhost_simulator.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's fields, and its status (0 where the dialect has none). Faults may change both."""

    status: int
    body: Mapping[str, Any]


class Reader(Protocol):
    """Takes one connection's bytes as they arrive, returns calls when they are complete."""

    def feed(self, data: bytes) -> None: ...

    def next_call(self, received_at: float) -> Call | None:
        """The next whole one, or None until there is one. After one with `last` there is never another."""


class Dialect(Protocol):
    """`schemes`: of the host's URL, without and with TLS. `greets`: a connection begins with a logon. `expected`: the
    field with the number that is wanted next. `in_use`: what a second connection gets. `working`: what says that the
    answer takes longer.
    """

    schemes: tuple[str, str]
    greets: bool
    expected: str
    in_use: bytes
    working: bytes

    def reader(self, connection: int, *, check_operations: bool) -> Reader: ...

    def lacks(self, call: Call, authorization: str) -> bool:
        """Whether this call should have had these credentials."""

    def denied(self, *, last: bool) -> tuple[bytes, bool]:
        """The answer to one that lacks them, and whether its connection ends."""

    def answer(self, verdict: Verdict) -> Answer: ...

    def encode(self, answer: Answer, *, last: bool = False) -> bytes:
        """The answer on the wire; `last`: it announces that the connection ends."""

    def encode_old(self, answer: Answer, *, length: bool) -> bytes:
        """As an old host says it, whose connection ends with each answer; `length`: it tells where the answer ends."""

    def other(self, status: int, text: str) -> bytes:
        """An answer with any text, as other software gives."""

    def garbage(self, kind: str, call: Call) -> tuple[bytes, bool]:
        """A reply that might mislead a client, and whether its connection can go on."""
