"""The plain loop: one process takes the outbox in order and sends it. No Temporal, no debounce, no lanes.

The lease is the ledger's row with its epoch. It claims a page of the oldest changes and gives the session all of it as
one send, so that between two operations there is a single transaction: the strongest plain loop we could think of. What
it lacks is a policy: each change is an operation, and an emergency waits behind all that came before it. A thread for
each host.
"""

from __future__ import annotations

import threading
import time

from sqlalchemy.engine import Engine

from bench.rivals.holding import Holding
from oldhost_sync.roles.process import share_among_threads
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.store.engine import create_engine

PAGE = 20
POLL_SECONDS = 0.05
CONNECTIONS_MAX = 16
_OLDEST = (
    "SELECT id FROM outbox_events FORCE INDEX (ix_outbox_events_outstanding) "
    "WHERE host = %s AND processed_at IS NULL ORDER BY id LIMIT %s"
)


def main() -> None:
    share_among_threads()
    settings = load_settings()
    urls = settings.urls_by_host()
    engine = create_engine(settings.need_database_url(), pool_size=min(2 * len(urls), CONNECTIONS_MAX))
    for host, url in urls.items():
        own = settings.model_copy(update={"host": host, "oldhost_url": url})
        threading.Thread(target=send_for_ever, args=(own, engine)).start()


def send_for_ever(settings: Settings, engine: Engine) -> None:
    holding = Holding(settings, engine)
    holding.session()
    while True:
        with engine.connect() as connection:
            ids = list(connection.exec_driver_sql(_OLDEST, (settings.host, PAGE)).scalars())
        if ids:
            holding.send(ids)
        else:
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
