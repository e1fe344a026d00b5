"""The queue worker: Huey from the shelf, with its SQLite broker and one worker; each change is a task, sent as it
comes.

Emergencies get a higher priority, which Huey's SQLite broker knows. The outbox is fed into the queue by a thread, so
that no application has to write to two systems at once; SQLite's queue then is a second truth beside the database.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

from huey import SqliteHuey

from bench.rivals.holding import Holding
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.roles.process import share_among_threads
from oldhost_sync.settings import load_settings
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.outbox.outstanding_changes import claim_batch, mark_relayed
from oldhost_sync.store.transactions import run_in_transaction

FEED_SECONDS = 0.1
FEED_BATCH = 200


def main() -> None:
    share_among_threads()
    settings = load_settings()
    engine = create_engine(settings.need_database_url(), pool_size=3)
    holding = Holding(settings, engine)
    broker = Path(os.environ["BENCH_FOLDER"]) / f"{settings.host}-queue.db"  # it outlives this process
    huey = SqliteHuey("bench", filename=str(broker), results=False, fsync=False)

    @huey.task()  # type: ignore[untyped-decorator]
    def send_change(change_id: int) -> None:
        holding.send([change_id])

    def feed() -> None:
        while True:
            refs = run_in_transaction(engine, lambda connection: claim_batch(connection, settings.host, FEED_BATCH))
            for ref in refs:
                send_change(ref.change_id, priority=100 if ref.priority_class is PriorityClass.EMERGENCY else 0)
            ids = [ref.change_id for ref in refs]
            run_in_transaction(engine, partial(mark_relayed, change_ids=ids))
            if not refs:
                time.sleep(FEED_SECONDS)

    holding.session()
    threading.Thread(target=feed, daemon=True).start()
    consumer = huey.create_consumer(workers=1, worker_type="thread", periodic=False, initial_delay=0.02, max_delay=0.1)
    consumer.run()
    os._exit(0)


if __name__ == "__main__":
    main()
