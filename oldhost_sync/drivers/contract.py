"""What a driver is to the rest, which does not know which driver it is.

A driver is configured once per host. It says what its kind of host can do, and makes a wire for each connection. A wire
turns what is wanted into bytes, and the bytes that arrive into events. Sockets, TLS, deadlines, pauses, the ledger and
recovery stay outside; a body is made by the host's mapping before a driver sees it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.drivers.events import Event, Said

# The version of this contract. A driver for another one is refused by name at the start.
API = 1
# A shorter one is in many an answer by chance.
SECRET_LENGTH_MIN = 6
# Instead of a host's words that have a secret of ours.
NOT_SHOWN = "not shown: our credentials are in it"


class Garbled(Exception):  # noqa: N818 - says what came
    """The bytes are not an answer within the limits; the connection can't be used again. The text has none of them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """To whom a connection leads. `authority`: the host's name and port; `base`: the path of its address, without a
    slash at the end; `authorization`: as an Authorization header has it, `sign_key`: what requests are signed with,
    both secrets, empty: none.
    """

    authority: str = "oldhost"
    base: str = ""
    authorization: str = field(default="", repr=False)
    sign_key: bytes = field(default=b"", repr=False)

    def echoes_secret(self, data: bytes) -> bool:
        """Whether a secret of ours is in the host's words, as pages for developers show requests."""
        scheme, _, credentials = self.authorization.partition(" ")
        secrets = [credentials.encode(), self.sign_key]
        if scheme == "Basic":
            secrets.append(base64.b64decode(credentials).partition(b":")[2])
        return any(len(secret) >= SECRET_LENGTH_MIN and secret in data for secret in secrets)


LOCAL = Peer()


class Wire(Protocol):
    """One connection's protocol. One exchange at a time: a request is asked for, written, and then bytes are fed until
    an End ends it: an Answer to an operation, a Told or OutcomeTold to a question, Ready or a Told to the greeting.
    `at_ms`: the wall clock's time, for what is signed or dated.
    """

    @property
    def said(self) -> Said | None:
        """The last answer to an operation in its own words, unless it ends the operation by the protocol."""

    def greet(self, at_ms: int) -> bytes:
        """What is written first; then Ready, or a Told, is awaited. Empty: the connection is ready at once."""

    def operation(self, number: int, body: bytes, at_ms: int) -> bytes:
        """The request for an operation. `number`: as the host counts."""

    def ask_expected(self, at_ms: int) -> bytes:
        """The question for the number that the host expects next. It changes nothing there."""

    def ask_outcome(self, number: int, key: str, at_ms: int) -> bytes:
        """The question for the outcome of the operation that had this number, or of the newest one that had this
        idempotency key: an operator may send a change again.
        """

    def idle(self, at_ms: int) -> bytes:
        """What keeps an idle connection alive; empty: nothing. It is answered by nothing but Working."""

    def bye(self, at_ms: int) -> bytes:
        """What is written before we close; empty: nothing. No answer is awaited."""

    def feed(self, data: bytes) -> list[Event]:
        """What these bytes complete; they are never empty. How bytes are cut into pieces changes no event. Raises
        Garbled.
        """

    def end(self) -> list[Event]:
        """The connection has ended. Raises Garbled if that leaves an answer open, which is then never definite."""


class Driver(Protocol):
    """`api`: API. `schemes`: what a host's URL may begin with (`http`, `https`, `tcp`, `tls`). `answer_bytes_max`: more
    bytes than that are no answer.
    """

    @property
    def api(self) -> int: ...

    @property
    def schemes(self) -> tuple[str, ...]: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def answer_bytes_max(self) -> int: ...

    def wire(self, peer: Peer) -> Wire:
        """For a new connection."""


# Makes a driver from a host's own options, as TOML gives them. Raises InvalidOptions.
DriverFactory = Callable[[Mapping[str, Any]], Driver]


class InvalidOptions(ValueError):  # noqa: N818 - says what was given
    """A host's options that its driver does not take: each mistake's key, and what is wrong, without the value."""

    def __init__(self, mistakes: Sequence[tuple[tuple[str, ...], str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(key)}: {why}" for key, why in mistakes))
        self.mistakes = mistakes
