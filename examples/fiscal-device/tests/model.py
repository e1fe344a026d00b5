"""The device, from its manual, without faults."""


def framed(number: int, command: bytes, data: bytes) -> bytes:
    summed = bytes([0x20 + len(data), number]) + command + data + b"\x05"
    return b"\x01" + summed + f"{sum(summed):04X}".encode() + b"\x03"


class Device:
    def __init__(self) -> None:
        self.done: list[bytes] = []  # the bodies that it has carried out, in order
        self.last = 0x7C  # the number of its last operation: they wrap soon
        self.answer = b""  # the one to that; empty: forgotten
        self.half = b""

    def connected(self) -> bytes:
        self.half = b""
        return b""

    def received(self, data: bytes) -> bytes:
        self.half += data
        answers = b""
        while len(self.half) >= 2 and len(self.half) >= (size := self.half[1] - 0x20 + 10):
            request, self.half = self.half[:size], self.half[size:]
            answers += self._answer(request)
        return answers

    def _answer(self, request: bytes) -> bytes:
        number, command, data = request[2], request[3:4], request[4:-6]
        is_known = command in (b"I", b"P") and 0x20 <= number <= 0x7F
        if not is_known or request != framed(number, command, data):
            return b"\x15"
        if command == b"I":
            after = 0x20 if self.last == 0x7F else self.last + 1
            return framed(number, b"I", b"R%02X,boot1" % after)
        if number != self.last or not self.answer:
            self.last, self.answer = number, framed(number, b"P", self._outcome(data))
        return b"\x16" + self.answer

    def _outcome(self, body: bytes) -> bytes:
        if not body:
            return b"Enothing to print"
        self.done.append(body)
        return b"A"
