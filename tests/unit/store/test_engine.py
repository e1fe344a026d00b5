"""Addresses that are understood, and versions that are read."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from oldhost_sync.store.engine import _Connection, create_engine, database_address, version_number
from oldhost_sync.store.errors import UnsuitableServer


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_every_usual_way_to_write_the_address_reaches_the_one_driver(scheme: str) -> None:
    address = database_address(f"{scheme}://me:secret@db:3307/sync")
    assert address.drivername == "mysql+pymysql"
    assert (address.host, address.port, address.database) == ("db", 3307, "sync")
    assert address.query["charset"] == "utf8mb4"


@pytest.mark.parametrize("address", ["postgresql://db/sync", "mysql+mysqldb://db/sync", "db:3306", ""])
def test_another_database_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(UnsuitableServer, match="mariadb\\+pymysql://"):
        database_address(address)


def test_making_an_engine_opens_no_connection() -> None:
    create_engine("mysql://127.0.0.1:1/nowhere").dispose()


def test_the_machines_certificates_are_read_once_however_often_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[None] = []
    really = ssl.create_default_context

    def counted(*arguments: Any, **named: Any) -> ssl.SSLContext:
        read.append(None)
        return really(*arguments, **named)

    monkeypatch.setattr(_Connection, "_unchecked", None)
    monkeypatch.setattr(ssl, "create_default_context", counted)
    for _ in range(3):
        with pytest.raises(OperationalError):
            create_engine("mysql://127.0.0.1:1/nowhere").connect()
    assert len(read) == 1


@pytest.mark.parametrize(
    ("version", "number"),
    [("10.11.6-MariaDB-0+deb12u1", (10, 11)), ("5.5.5-10.6.18-MariaDB-log", (10, 6)), ("11.4.2-MariaDB", (11, 4))],
)
def test_the_version_is_read_past_its_prefix(version: str, number: tuple[int, int]) -> None:
    assert version_number(version) == number
