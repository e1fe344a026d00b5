"""Without servers."""

from typing import Any

import pytest
from bookings import bookings, create_app
from fastapi.testclient import TestClient
from sqlalchemy import StaticPool, create_engine, select

from oldhost_sync.http_client import SyncClient
from oldhost_sync.testing import Recorder

KIM = {"unit": "A-101", "guest": "Kim"}
# One database in memory for all threads.
MEMORY: dict[str, Any] = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}


@pytest.fixture
def client(oldhost_sync_recorder: Recorder) -> TestClient:
    sync = SyncClient("http://sync", "a token", transport=oldhost_sync_recorder.transport())
    return TestClient(create_app(create_engine("sqlite://", **MEMORY), sync))


def test_a_booking_is_recorded_with_its_change(client: TestClient, oldhost_sync_recorder: Recorder) -> None:
    number = client.post("/bookings", json=KIM).json()["id"]
    (change,) = oldhost_sync_recorder.changes()
    assert (change.entity_id, change.event_type, change.payload) == ("A-101", "booking_created", {"booking": number})


def test_a_booking_shows_whether_oldhost_has_it(client: TestClient, oldhost_sync_recorder: Recorder) -> None:
    number = client.post("/bookings", json=KIM).json()["id"]
    assert client.get(f"/bookings/{number}").json()["oldhost"] == "WAITING"
    oldhost_sync_recorder.settle()
    assert client.get(f"/bookings/{number}").json()["oldhost"] == "APPLIED"


def test_without_its_change_there_is_no_booking(oldhost_sync_recorder: Recorder) -> None:
    engine = create_engine("sqlite://", **MEMORY)
    sync = SyncClient("http://sync", "a token", transport=oldhost_sync_recorder.transport())
    refused = TestClient(create_app(engine, sync)).post("/bookings", json={**KIM, "unit": "x" * 200})
    assert (refused.status_code, "entity_id" in refused.text) == (422, True)
    with engine.connect() as connection:
        assert connection.execute(select(bookings)).all() == []
