"""First without servers, last on real ones."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
from django.conf import settings
from django.db import connections
from django.test import Client

from oldhost_sync.http_client import SyncClient
from oldhost_sync.testing import Recorder

KIM = {"unit": "A-101", "guest": "Kim"}


@contextmanager
def with_table() -> Iterator[None]:
    from bookings import Booking

    with connections["default"].schema_editor() as editor:
        editor.create_model(Booking)
    yield
    with connections["default"].schema_editor() as editor:
        editor.delete_model(Booking)


@pytest.fixture
def recorder(oldhost_sync_recorder: Recorder) -> Iterator[Recorder]:
    """With an empty database in memory."""
    settings.SYNC_CLIENT = SyncClient("http://sync", "a token", transport=oldhost_sync_recorder.transport())
    with with_table():
        yield oldhost_sync_recorder


def post(**booking: str) -> Any:
    return Client().post("/bookings", booking, content_type="application/json")


def test_a_booking_is_recorded_with_its_change(recorder: Recorder) -> None:
    number = post(**KIM).json()["id"]
    (change,) = recorder.changes()
    assert (change.entity_id, change.event_type, change.payload) == ("A-101", "booking_created", {"booking": number})


def test_a_booking_shows_whether_oldhost_has_it(recorder: Recorder) -> None:
    number = post(**KIM).json()["id"]
    assert Client().get(f"/bookings/{number}").json()["oldhost"] == "WAITING"
    recorder.settle()
    assert Client().get(f"/bookings/{number}").json()["oldhost"] == "APPLIED"


@pytest.mark.usefixtures("recorder")
def test_without_its_change_there_is_no_booking() -> None:
    from bookings import Booking

    refused = post(**{**KIM, "unit": "x" * 200})
    assert (refused.status_code, "entity_id" in refused.json()["detail"]) == (422, True)
    assert not Booking.objects.exists()


@pytest.fixture
def on_mariadb(oldhost_sync_stack: Any) -> Iterator[None]:
    """Django over PyMySQL, under the name of the driver that it looks for."""
    pymysql.version_info = (2, 2, 1, "final", 0)
    for part in ("", ".constants", ".constants.CLIENT", ".constants.FIELD_TYPE", ".converters", ".cursors", ".err"):
        sys.modules[f"MySQLdb{part}"] = import_module(f"pymysql{part}")
    before, where = connections["default"], urlsplit(oldhost_sync_stack.own_database("bookings_django"))
    given = {"ENGINE": "django.db.backends.mysql", "NAME": where.path[1:], "USER": where.username}
    reached = {"PASSWORD": where.password, "HOST": where.hostname, "PORT": where.port}
    backend = import_module("django.db.backends.mysql.base")
    connections["default"] = backend.DatabaseWrapper({**before.settings_dict, **given, **reached})
    with oldhost_sync_stack.client() as settings.SYNC_CLIENT, with_table():
        yield
    connections["default"].close()
    connections["default"] = before


@pytest.mark.usefixtures("on_mariadb")
def test_oldhost_gets_it() -> None:
    """On real servers."""
    number = post(**KIM).json()["id"]
    assert Client().get(f"/bookings/{number}?wait=60").json()["oldhost"] == "APPLIED"
