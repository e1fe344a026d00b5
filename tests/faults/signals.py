"""Applications that only signal: no answer but Temporal's, which says that it keeps the signal. Every second one brings
no key.

Their receipts hold what was acknowledged; each must be recorded exactly once, whatever ended the run that took the
signal (I13). Each payload is its own, so that a keyless one can be found again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from oldhost_sync.temporal.client import DATA_CONVERTER, writer_policy
from tests.faults.product import Product
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, WriterInput, workflow_id

# Not `load.MARKER`: what an application puts into a signal is in that run's history (I9 excepts it), but in no log.
SIGNAL_MARKER = "signalled-payload"
PAUSE_SECONDS = (0.4, 1.6)
RPC_SECONDS_MAX = 5.0


@dataclass
class SignalReceipt:
    """One signal. `acknowledged`: by Temporal. One that was not may have arrived or not."""

    note: str
    key: str | None
    entity_type: str
    entity_id: str
    event_type: str
    acknowledged: bool = False
    at: float = 0.0


class SignalLoad:
    """`start`, `stop`; `receipts` holds every signal ever tried."""

    def __init__(self, product: Product, seed: int) -> None:
        self._product = product
        self._chance = random.Random(f"{seed}/signals")
        self._seed = seed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.receipts: list[SignalReceipt] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [asdict(receipt) for receipt in self.receipts]

    async def _run(self) -> None:
        client: Client | None = None
        while not self._stopped.is_set():
            receipt = self._make(len(self.receipts) + 1)
            self.receipts.append(receipt)
            try:
                if client is None:
                    client = await Client.connect(self._product.temporal_address, data_converter=DATA_CONVERTER)
                await self._signal(client, receipt)
                receipt.acknowledged, receipt.at = True, time.time()
            except (RPCError, RuntimeError):
                client = None
            await asyncio.sleep(self._chance.uniform(*PAUSE_SECONDS))

    def _make(self, number: int) -> SignalReceipt:
        note = f"{SIGNAL_MARKER} {self._seed}-{number}"
        key = f"signal-{self._seed}-{number}" if self._chance.random() < 0.5 else None
        event_type = self._chance.choice(("booking_created", "door_code_changed", "guest_locked_out"))
        return SignalReceipt(note, key, "unit", f"S{self._chance.randrange(10)}", event_type)

    async def _signal(self, client: Client, receipt: SignalReceipt) -> None:
        product = self._product
        change = {
            "entity_type": receipt.entity_type,
            "entity_id": receipt.entity_id,
            "event_type": receipt.event_type,
            "payload": {"note": receipt.note},
            **({"idempotency_key": receipt.key} if receipt.key else {}),
        }
        await client.start_workflow(
            WORKFLOW_TYPE,
            WriterInput(host=product.host, policy=writer_policy(product.settings.of_host(product.host))),
            id=workflow_id(product.host),
            task_queue=TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="submit_change",
            start_signal_args=[change],
            rpc_timeout=timedelta(seconds=RPC_SECONDS_MAX),
        )
