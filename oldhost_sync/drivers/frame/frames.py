"""Frames: four bytes with a length, and so many bytes behind them. Where one ends is never guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from oldhost_sync.drivers.contract import Garbled

LENGTH_BYTES = 4
# The longest answer has a reason of some hundred characters. Text of another protocol, read as a length, is far longer:
# "HTTP" would be 1.2 GB.
FRAME_BYTES_MAX = 64 * 1024


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A line of JSON, and behind its end the body as it is: so no byte of it needs an escape, and one length says all.

    Compact JSON in ASCII has no line break.
    """
    line = json.dumps(head, separators=(",", ":")).encode("ascii")
    content = line + b"\n" + body if body else line
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


class FrameReader:
    """Takes bytes as they arrive, gives frames when they are complete."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next one without its length; None: it is not complete. Raises Garbled."""
        if len(self._buffer) < LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if not 0 < length <= FRAME_BYTES_MAX:
            raise Garbled(f"a frame of {length} bytes; it has 1 to {FRAME_BYTES_MAX}")
        end = LENGTH_BYTES + length
        if len(self._buffer) < end:
            return None
        content, self._buffer = self._buffer[LENGTH_BYTES:end], self._buffer[end:]
        return content

    @property
    def has_begun(self) -> bool:
        """Whether bytes are here that no complete frame has taken."""
        return bool(self._buffer)
