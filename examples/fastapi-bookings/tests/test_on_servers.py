"""On real servers."""

from typing import Any

from bookings import create_app
from fastapi.testclient import TestClient
from sqlalchemy import create_engine


def test_oldhost_gets_it(oldhost_sync_stack: Any) -> None:
    engine = create_engine(oldhost_sync_stack.own_database("bookings"))
    with oldhost_sync_stack.client() as sync:
        client = TestClient(create_app(engine, sync))
        number = client.post("/bookings", json={"unit": "A-101", "guest": "Kim"}).json()["id"]
        assert client.get(f"/bookings/{number}?wait=60").json()["oldhost"] == "APPLIED"
    engine.dispose()
