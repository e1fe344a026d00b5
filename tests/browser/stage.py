"""The whole product for the browser: real servers, processes for every role, OldHost, and two people with tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oldhost_sync.settings import ApiToken, Role
from oldhost_sync.stack.mariadb import DatabaseUrls
from tests.faults.product import Product

# Of every file of tests that has a stage.
MARKS = [
    pytest.mark.browser,
    pytest.mark.mariadb,
    pytest.mark.temporal,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
# Each token is the name itself.
OPERATOR, VIEWER = "anna", "vera"
_ROLES = {OPERATOR: Role.OPS, VIEWER: Role.VIEWER}


@contextmanager
def staged(folder: Path, database: DatabaseUrls, temporal: str, **given: Any) -> Iterator[Product]:
    """A product whose console lets `OPERATOR` and `VIEWER` in; OldHost runs, the roles are for the test to start."""
    signed = {"act_keys": "k" * 32}  # else the console would say of its own acts that nobody has checked the name
    with Product(folder, database, temporal, given=signed | given) as product:
        people = tuple(ApiToken(name, role, hashlib.sha256(name.encode()).hexdigest()) for name, role in _ROLES.items())
        tokens = product.settings.api_tokens + people
        product.settings = product.settings.model_copy(update={"api_tokens": tokens})
        product.start_simulator()
        yield product


def begin(product: Product) -> None:
    """Every role runs, and there is a writer to ask."""
    product.start_api()
    product.start("relay")
    product.start_worker()
    product.start_writer()


def address_of(product: Product) -> str:
    return f"http://127.0.0.1:{product.api.port}"


def state_of(product: Product) -> str:
    return str(product.status()["state"])
