"""Alert delivery as a part of a role. Relay and worker both have it: whichever is gone, the other posts the alerts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine

from oldhost_sync.delivery import POST_SECONDS_MAX, Delivery, post
from oldhost_sync.settings import Settings
from oldhost_sync.telemetry import DeliveryMetrics

# Of the role's engine, at a time. The one that holds a host's lock is apart from the pool.
CONNECTIONS = 1


@asynccontextmanager
async def alerts_delivered(settings: Settings, engine: Engine, registry: CollectorRegistry) -> AsyncIterator[None]:
    """If a webhook is set, deliver alerts to it, in a separate thread because it may be slow."""
    metrics = DeliveryMetrics(registry)
    if settings.alert_webhook_url is None:
        yield
        return
    signed = partial(post, secret=settings.alert_webhook_secret or "")
    delivery = Delivery(engine, settings.alert_webhook_url, settings.hosts(), signed, metrics.count)
    thread = threading.Thread(target=delivery.run, name="alert-delivery", daemon=True)
    thread.start()
    try:
        yield
    finally:
        delivery.leave()
        await asyncio.to_thread(thread.join, 2 * POST_SECONDS_MAX)
