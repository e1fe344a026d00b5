"""The applications: they submit each change when it is due, without waiting for earlier ones (open loop).

Nearly all use the HTTP API, over a few kept-alive connections of plain asyncio, because the generator runs on
the same cores as the product. Some signal the workflow, and some emergencies wait for their nonce with `apply_now`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from oldhost_sync.planner import Arrival, Scenario, arrivals
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.temporal.client import writer_handle

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CONNECTIONS = 12
# A request that is answered 503 or not at all is repeated under the same key.
ATTEMPTS_MAX = 8
# One of this many TXN changes is signalled; one of this many emergencies is submitted by `apply_now`.
SIGNAL_EVERY = 90
APPLY_NOW_EVERY = 25
STATUSES = ("Dirty", "Being cleaned", "Clean", "Inspected", "Occupied")
PER_SECOND = 300
SECONDS = 10.0
# More than ever wait for an answer while the promise is kept: 200 ms at 300 a second are 60.
CONNECTIONS_MAX = 150


@dataclass
class Receipts:
    """The answers that applications got. `accepted`: keys by way (http, signal, apply_now); `failed`: not accepted."""

    accepted: dict[str, list[str]] = field(default_factory=lambda: {"http": [], "signal": [], "apply_now": []})
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    repeated: int = 0
    apply_now: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(len(keys) for keys in self.accepted.values())


def key_of(change: Arrival) -> str:
    return f"demo-{change.number:05}"


def payload_of(change: Arrival) -> dict[str, Any]:
    """The change's payload: different for each change, the same for the same seed."""
    if change.event_type == "unit_status_changed":
        return {"status": STATUSES[change.step % len(STATUSES)]}
    if change.event_type == "rate_changed":
        return {"rate_cents": 9_000 + 100 * change.step, "currency": "EUR"}
    if change.event_type == "door_code_changed":
        return {"door_code": f"{change.number * 7919 % 10_000:04}"}
    return {"reference": f"{change.event_type}-{change.number}"}


def request_of(change: Arrival, token: str, host: str) -> bytes:
    """The HTTP request that submits the change."""
    payload = payload_of(change)
    if change.event_type == "unit_status_changed":
        path, body = f"/api/units/{quote(change.entity_id)}/status", payload
    else:
        path, body = "/api/changes", _whole(change)
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {key_of(change)}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _whole(change: Arrival) -> dict[str, Any]:
    return {
        "entity_type": change.entity_type,
        "entity_id": change.entity_id,
        "event_type": change.event_type,
        "payload": payload_of(change),
    }


def ways(changes: Sequence[Arrival]) -> list[str]:
    """How each change is submitted: http, signal or apply_now."""
    seen: Counter[PriorityClass] = Counter()
    chosen = []
    for change in changes:
        seen[change.priority_class] += 1
        nth = seen[change.priority_class]
        if change.priority_class is PriorityClass.EMERGENCY and nth % APPLY_NOW_EVERY == 0:
            chosen.append("apply_now")
        elif change.priority_class is PriorityClass.TXN and nth % SIGNAL_EVERY == 0:
            chosen.append("signal")
        else:
            chosen.append("http")
    return chosen


class Applications:
    """Submits all changes at their time; `receipts` grows while it runs."""

    def __init__(self, api: str, token: str, client: Client, host: str) -> None:
        parts = urlsplit(api)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._named = parts.netloc
        self._token = token
        self._writer = writer_handle(client, host)
        self._due: asyncio.Queue[tuple[float, Arrival]] = asyncio.Queue()
        self.receipts = Receipts()

    async def make(self, changes: Sequence[Arrival]) -> Receipts:
        """Submit the changes; returns when the last one has been answered."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.TaskGroup() as waiting:
            connections = [asyncio.create_task(self._connection()) for _ in range(CONNECTIONS)]
            for change, way in zip(changes, ways(changes), strict=True):
                due = started + change.at_ms / 1000
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if way == "http":
                    self._due.put_nowait((due, change))
                elif way == "signal":
                    waiting.create_task(self._signal(change))
                else:
                    waiting.create_task(self._apply_now(change))
            await self._due.join()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        return self.receipts

    # ------------------------------------------------------------------------------------------------------------- HTTP

    async def _connection(self) -> None:
        """One kept-alive connection; opened again when the server closes it."""
        streams: Streams | None = None
        try:
            while True:
                due, change = await self._due.get()
                for attempt in range(ATTEMPTS_MAX):
                    try:
                        streams = streams or await asyncio.open_connection(*self._address)
                        status, answer = await ask(streams, request_of(change, self._token, self._named))
                    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                        streams, status, answer = None, 0, str(error)
                    if status not in {0, 503}:
                        break
                    self.receipts.repeated += 1
                    await asyncio.sleep(min(0.1 * 2**attempt, 2))
                self._note(change, status, answer, due)
                self._due.task_done()
        finally:
            if streams is not None:
                streams[1].close()

    def _note(self, change: Arrival, status: int, answer: str, due: float) -> None:
        self.receipts.seconds.append(asyncio.get_running_loop().time() - due)
        if status == 202:
            self.receipts.accepted["http"].append(key_of(change))
        else:
            self.receipts.failed.append(f"{key_of(change)}: {status} {answer[:200]}")

    # --------------------------------------------------------------------------------------------------------- Temporal

    async def _signal(self, change: Arrival) -> None:
        try:
            await self._writer.signal("submit_change", {**_whole(change), "idempotency_key": key_of(change)})
        except RPCError as error:
            self.receipts.failed.append(f"{key_of(change)}: signal: {error}")
        else:
            self.receipts.accepted["signal"].append(key_of(change))

    async def _apply_now(self, change: Arrival) -> None:
        try:
            answer = await self._writer.execute_update(
                "apply_now", {**_whole(change), "idempotency_key": key_of(change)}, result_type=dict
            )
        except (RPCError, WorkflowUpdateFailedError) as error:
            self.receipts.failed.append(f"{key_of(change)}: apply_now: {error}")
        else:
            self.receipts.accepted["apply_now"].append(key_of(change))
            self.receipts.apply_now[str(answer["status"])] += 1


async def ask(streams: Streams, request: bytes) -> tuple[int, str]:
    """Send a request; returns the answer's status and body."""
    reader, writer = streams
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    body = await reader.readexactly(length)
    return int(head[9:12]), body.decode(errors="replace")


@dataclass
class Burst:
    """Seconds of each change: `late` from when it was due until the generator came to it, which is the generator's own
    delay; `took` from then to its answer. `failed`: not accepted.
    """

    took: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lasted: float = 0.0


def burst_of(scenario: Scenario, after: int, seconds: float = SECONDS) -> list[Arrival]:
    """The scenario's mix on its units, at 300 a second; numbered after the scenario's own changes."""
    count = round(PER_SECOND * seconds)
    made = arrivals(replace(scenario, changes=count, duration_s=seconds, bursts=0, ban_at_s=None))
    return [
        replace(change, number=after + number, at_ms=1000 * number // PER_SECOND)
        for number, change in enumerate(made, 1)
    ]


class BurstClient:
    """The first promise at real speed: 300 changes a second over the HTTP API, while OldHost takes its real 400 ms.

    The compressed peak can't show it, since there each second has the work of thirty. What the generator itself is late
    with is measured apart. Submits each change when it is due, on a kept-alive connection that no other request uses
    then, so that a slow answer delays no other change.
    """

    def __init__(self, api: str, token: str) -> None:
        parts = urlsplit(api)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._named = parts.netloc
        self._token = token
        self._idle: list[Streams] = []
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def make(self, changes: Sequence[Arrival]) -> Burst:
        burst, loop = Burst(), asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for change in changes:
                due = began + change.at_ms / 1000
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                burst.late.append(max(0.0, loop.time() - due))
                tasks.create_task(self._submit(change, loop.time(), burst))
        burst.lasted = loop.time() - began
        for _, writer in self._idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._idle), return_exceptions=True)
        return burst

    async def _submit(self, change: Arrival, begun: float, burst: Burst) -> None:
        """Waiting for a connection counts: all are busy only if answers are late."""
        async with self._places:
            try:
                streams = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
                status, answer = await ask(streams, request_of(change, self._token, self._named))
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                status, answer = 0, str(error)
            else:
                self._idle.append(streams)
        burst.took.append(asyncio.get_running_loop().time() - begun)
        if status != 202:
            burst.failed.append(f"{key_of(change)}: {status} {answer[:200]}")
