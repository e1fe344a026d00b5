"""A real browser and a real product for the tests of a file; each test gets windows of its own.

They last no longer than the file: Playwright keeps an event loop in this thread, and other tests start their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser

from oldhost_sync.stack.temporal import EmbeddedTemporal
from tests.browser.chromium import chromium
from tests.browser.stage import staged
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import Product

Stage = Callable[..., AbstractContextManager[Product]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(
    mariadb_server: PrivateMariaDB, temporal_dev_server: EmbeddedTemporal, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """`with stage(setting=value) as product:` is a product of the file's own, on a database that is new."""

    @contextmanager
    def begin(**given: Any) -> Iterator[Product]:
        folder = tmp_path_factory.mktemp("browser")
        with (
            mariadb_server.migrated_database() as urls,
            staged(folder, urls, temporal_dev_server.address, **given) as product,
        ):
            yield product

    return begin
