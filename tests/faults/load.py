"""A steady load through the HTTP API by applications that keep receipts.

Each application repeats a write that got no answer, with the same Idempotency-Key, as the API's documentation says. Now
and then one gives up instead (`abandoned`): its change may or may not exist, and whichever it is must be true
everywhere. A receipt that is neither is `unknown`, and is asked for again when all is well.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.faults.product import Api

APPLICATIONS = 4
ATTEMPTS_MAX = 4
UNITS = 30
BOOKINGS = 20
MARKER = "marked-payload"

# Share of all changes, entity type, event type, class.
MIX = (
    (0.40, "unit", "unit_status_changed", "LWW"),
    (0.20, "unit", "rate_changed", "LWW"),
    (0.18, "unit", "door_code_changed", "TXN"),
    (0.16, "booking", "booking_created", "TXN"),
    (0.06, "unit", "guest_locked_out", "EMERGENCY"),
)
STATUSES = ("Clean", "Dirty", "Occupied", "Inspected")


@dataclass
class Receipt:
    """One write and what its application knows of it."""

    key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str
    payload: dict[str, Any]
    state: str = "unknown"
    change_id: int | None = None
    attempts: int = 0
    answered_at: float = 0.0
    seconds: float = 0.0
    answers: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Load:
    """`start`, `stop`, then `settle` when the API is well again; `receipts` holds everything ever tried."""

    def __init__(self, api: Api, seed: int, rate_per_second: float) -> None:
        self._api = api
        self._seed = seed
        self._pause = APPLICATIONS / rate_per_second
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.receipts: list[Receipt] = []

    def start(self) -> None:
        for number in range(APPLICATIONS):
            chance = random.Random(f"{self._seed}/{number}")
            thread = threading.Thread(target=self._apply, args=(number, chance), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def settle(self, seconds: float) -> None:
        """Ask again for every unknown end, until each is known or the time is up."""
        until = time.monotonic() + seconds
        while unknown := [one for one in self.receipts if one.state == "unknown"]:
            if time.monotonic() > until:
                return
            for receipt in unknown:
                self._try(receipt)

    # -------------------------------------------------------------------------------------------------- one application

    def _apply(self, number: int, chance: random.Random) -> None:
        count = 0
        while not self._stopped.is_set():
            count += 1
            receipt = make(f"{self._seed}-{number}-{count}", chance)
            with self._lock:
                self.receipts.append(receipt)
            self._write(receipt, chance)
            self._stopped.wait(self._pause * (0.5 + chance.random()))

    def _write(self, receipt: Receipt, chance: random.Random) -> None:
        for _ in range(ATTEMPTS_MAX):
            self._try(receipt)
            if receipt.state != "unknown":
                return
            if chance.random() < 0.05:
                receipt.state = "abandoned"
                return
            if self._stopped.wait(0.3 + chance.random()):
                return

    def _try(self, receipt: Receipt) -> None:
        receipt.attempts += 1
        began = time.time()
        try:
            status, answer = self._send(receipt)
        except (OSError, http.client.HTTPException, ValueError):
            receipt.answers.append(0)
            return
        receipt.answers.append(status)
        if status == 202:
            receipt.answered_at = time.time()
            receipt.seconds = receipt.answered_at - began
            receipt.change_id = answer["change_id"]
            receipt.state = "accepted"
        elif status < 500:
            receipt.state = f"refused with {status}"

    def _send(self, receipt: Receipt) -> tuple[int, dict[str, Any]]:
        if receipt.event_type == "unit_status_changed":
            path = f"/api/units/{receipt.entity_id}/status"
            return self._api.call("POST", path, receipt.payload, key=receipt.key)
        body = {
            "entity_type": receipt.entity_type,
            "entity_id": receipt.entity_id,
            "event_type": receipt.event_type,
            "payload": receipt.payload,
        }
        return self._api.call("POST", "/api/changes", body, key=receipt.key)


def make(key: str, chance: random.Random) -> Receipt:
    """A change of the mix. Its payload is its own but for statuses, some of which are equal (no-ops)."""
    draw, entity_type, event_type, priority_class = chance.random(), "", "", ""
    for share, *kind in MIX:
        entity_type, event_type, priority_class = kind
        draw -= share
        if draw < 0:
            break
    entity_id = f"B{chance.randrange(BOOKINGS)}" if entity_type == "booking" else f"U{chance.randrange(UNITS)}"
    if event_type == "unit_status_changed":
        own = f" {MARKER} {key}" if chance.random() < 0.5 else ""
        payload: dict[str, Any] = {"status": f"{chance.choice(STATUSES)}{own}"}
    else:
        payload = {"note": f"{MARKER} {key}"}
        if event_type == "door_code_changed" and chance.random() < 0.5:
            payload["status"] = chance.choice(STATUSES)  # a field that another event type says as well
        if chance.random() < 0.02:
            payload["poison"] = True
    return Receipt(key, entity_type, entity_id, event_type, priority_class, payload)
