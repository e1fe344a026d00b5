"""The host that the line driver is for, as the kit wants a model."""

from __future__ import annotations


class LineHost:
    """It expects one number after the other, and refuses one that was used."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self._first = 501
        self._kept = b""

    def connected(self) -> bytes:
        self._kept = b""
        return b""

    def received(self, data: bytes) -> bytes:
        *lines, self._kept = (self._kept + data).split(b"\n")
        return b"".join(map(self._answer, lines))

    def _answer(self, line: bytes) -> bytes:
        expected = self._first + len(self.done)
        match line.split():
            case [b"HELLO", *_]:
                return b"READY %d boot7\n" % expected
            case [b"NEXT?"]:
                return b"NEXT %d\n" % expected
            case [b"DO", number, _, body] if int(number) == expected:
                self.done.append(bytes.fromhex(body.decode()))
                return b"WAIT\nDONE %d\n" % expected
            case [b"DO", number, *_]:
                return b"OLD %d\n" % expected if int(number) < expected else b"NEXT %d\n" % expected
        return b""
