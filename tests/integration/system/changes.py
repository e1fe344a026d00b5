"""Changes as applications make them: from Python in their own transaction, and by the API."""

from __future__ import annotations

from contextlib import closing

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.transactions import run_in_transaction
from tests.faults.product import Product

MARKER = "a-payload-nobody-else-may-see"


def record(product: Product, count: int, event_type: str = "booking_created", *, entity: str = "U") -> list[int]:
    """So many changes, each of an entity of its own; gives their ids."""
    engine = create_engine(product.settings.need_database_url())
    with closing(engine.connect()):
        ids = [
            run_in_transaction(
                engine,
                lambda connection, number=number: record_change(  # type: ignore[misc]
                    connection,
                    host=product.host,
                    entity_type="unit",
                    entity_id=f"{entity}{number}",
                    event_type=event_type,
                    payload={"note": MARKER},
                ),
            ).change_id
            for number in range(count)
        ]
    engine.dispose()
    return [change_id for change_id in ids if change_id is not None]


def submit(product: Product, count: int, name: str) -> list[int]:
    """So many changes by the API; gives their ids."""
    return [product.api.change(f"{name}-{number}", "booking_created", {"of": name}) for number in range(count)]


def accepts(product: Product) -> bool:
    """Whether the API takes a change now; it is the same one each time."""
    try:
        return product.api.call("POST", "/api/units/first/status", {"status": "Clean"}, key="first-of-all")[0] == 202
    except OSError:
        return False
