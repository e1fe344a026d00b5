"""Tests on the exhaustive scenario, which runs in the simulation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import patches


@pytest.fixture(autouse=True, scope="module")
def product_as_it_was() -> Iterator[None]:
    """Whatever test follows in this process meets the product without the simulation's patches."""
    yield
    patches.uninstall()
