"""A load generator for the API: requests leave at a fixed rate, whatever the answers do (open loop).

Latency is counted from when a request was *due*, not from when a free connection let it go, so a stall of the server is
felt by every request that fell due during it (no coordinated omission). Raw HTTP/1.1 over a few keep-alive connections,
requests made beforehand: the generator must cost little, because it runs on the same cores as what it measures.

With `--closed N` there is no rate: N requests, on each connection the next one when the last is answered, which shows
what the server can take; latency is then counted from the send. `--batch N`: N changes a request, by the batch route.

    python bench/load.py http://127.0.0.1:8000 --token … --rate 300 --seconds 30
    python bench/load.py http://127.0.0.1:8000 --token … --closed 40 --batch 500 --connections 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from urllib.parse import urlsplit

# The peak's mix: 80 % LWW, 18 % TXN, 2 % EMERGENCY.
MIX = ((80, "unit_status_changed"), (18, "door_code_changed"), (2, "guest_locked_out"))
STATUSES = ("Clean", "Dirty", "Occupied", "Inspected")
ANSWERED_SECONDS_MAX = 60.0


@dataclass
class Measured:
    """What came back: seconds from due to answered, by status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    late_sends: int = 0
    took_seconds: float = 0.0

    def share(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")

    def summary(self) -> dict[str, object]:
        return {
            "answered": len(self.seconds),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "p50_ms": round(self.share(0.50) * 1000, 2),
            "p90_ms": round(self.share(0.90) * 1000, 2),
            "p99_ms": round(self.share(0.99) * 1000, 2),
            "p999_ms": round(self.share(0.999) * 1000, 2),
            "max_ms": round(max(self.seconds, default=float("nan")) * 1000, 2),
            "waited_for_a_connection": self.late_sends,
            "took_s": round(self.took_seconds, 3),
        }


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._load.free.append(self)

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < head_end + 4 + length:
            return
        status = int(self._buffer[9:12])
        self._buffer = self._buffer[head_end + 4 + length :]
        self._load.answered(self, self._due, status)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface is asyncio's
        self._load.lost(self)


class Load:
    """Sends `requests` at `rate` a second over at most `connections`; None: each connection as soon as it is free."""

    def __init__(self, address: str, port: int, rate: float | None, connections: int) -> None:
        self._address, self._port = address, port
        self._rate = rate
        self._connections = connections
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._open = 0
        self._left = 0
        self._done = asyncio.Event()
        self.free: deque[Connection] = deque()
        self.measured = Measured()

    async def run(self, requests: list[bytes]) -> Measured:
        loop = asyncio.get_running_loop()
        for _ in range(self._connections):
            await loop.create_connection(lambda: Connection(self), self._address, self._port)
            self._open += 1
        self._left = len(requests)
        start = time.perf_counter() + (0.05 if self._rate else 0)
        for number, request in enumerate(requests):
            due = start if self._rate is None else start + number / self._rate
            pause = due - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            self._offer(request, due)
        async with asyncio.timeout(ANSWERED_SECONDS_MAX):
            await self._done.wait()
        self.measured.took_seconds = time.perf_counter() - start
        return self.measured

    def _offer(self, request: bytes, due: float) -> None:
        if self.free:
            self.free.popleft().send(request, due)
        else:
            self.measured.late_sends += 1
            self._waiting.append((request, due))

    def answered(self, connection: Connection, due: float, status: int) -> None:
        self.measured.seconds.append(time.perf_counter() - due)
        self.measured.statuses[status] += 1
        self._left -= 1
        if self._left == 0:
            self._done.set()
        if self._waiting:
            request, next_due = self._waiting.popleft()
            connection.send(request, time.perf_counter() if self._rate is None else next_due)
        else:
            self.free.append(connection)

    def lost(self, connection: Connection) -> None:
        self._open -= 1
        if connection in self.free:
            self.free.remove(connection)
        if self._open == 0:
            self._done.set()


def make_requests(host: str, token: str, count: int, units: int, seed: int) -> list[bytes]:
    """`count` writes in the peak's mix on `units` units; the same for the same seed."""
    return [_request(host, token, change) for change in _changes(count, units, seed)]


def make_batches(host: str, token: str, count: int, units: int, seed: int, size: int) -> list[bytes]:
    """`count` requests of `size` writes each, every change with a key of its own, as an application sends them."""
    changes = _changes(count * size, units, seed)
    for number, change in enumerate(changes):
        change["idempotency_key"] = f"load-{seed}-{time.time_ns()}-{number}"
    parts = [changes[start : start + size] for start in range(0, len(changes), size)]
    return [_post(host, token, "/api/changes/batch", {"changes": part}) for part in parts]


def _changes(count: int, units: int, seed: int) -> list[dict[str, object]]:
    chance = random.Random(seed)
    kinds = chance.choices([kind for _, kind in MIX], [share for share, _ in MIX], k=count)
    return [_change(kind, f"u{chance.randrange(units)}", chance) for kind in kinds]


def _change(kind: str, unit: str, chance: random.Random) -> dict[str, object]:
    payload = {"guest": "g-1"}
    if kind == "unit_status_changed":
        payload = {"status": chance.choice(STATUSES)}
    elif kind == "door_code_changed":
        payload = {"door_code": f"{chance.randrange(10_000):04}"}
    return {"entity_type": "unit", "entity_id": unit, "event_type": kind, "payload": payload}


def _request(host: str, token: str, change: dict[str, object]) -> bytes:
    if change["event_type"] == "unit_status_changed":
        return _post(host, token, f"/api/units/{change['entity_id']}/status", change["payload"])
    return _post(host, token, "/api/changes", change)


def _post(host: str, token: str, path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def measure(
    url: str, token: str, *, rate: float, seconds: float, connections: int = 32, units: int = 2500, seed: int = 1
) -> Measured:
    """Load `url` for `seconds` and give back what came of it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    requests = make_requests(parts.netloc, token, round(rate * seconds), units, seed)
    return await Load(parts.hostname, parts.port or 80, rate, connections).run(requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--token", required=True)
    parser.add_argument("--rate", type=float, default=300.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--closed", type=int, default=0, metavar="N", help="N requests without a rate")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="N changes a request")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--units", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    parts = urlsplit(given.url)
    count = given.closed or round(given.rate * given.seconds)
    made = (parts.netloc, given.token, count, given.units, given.seed)
    requests = make_batches(*made, given.batch) if given.batch else make_requests(*made)
    load = Load(parts.hostname or "", parts.port or 80, None if given.closed else given.rate, given.connections)
    measured = asyncio.run(load.run(requests))
    asked = {"closed": given.closed} if given.closed else {"rate": given.rate, "seconds": given.seconds}
    print(json.dumps(asked | measured.summary(), indent=2))


if __name__ == "__main__":
    main()
