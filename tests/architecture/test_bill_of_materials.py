"""Every locked package has a licence that we may use, and the bill of materials names what the image holds."""

from __future__ import annotations

from email.message import Message
from importlib import metadata

import pytest

from tests.architecture.bill_of_materials import (
    IMAGE_LOCK,
    Component,
    bill_of_materials,
    components,
    licence_of,
    locked,
)


def test_every_package_has_a_licence_that_is_allowed() -> None:
    assert [each for each in components() if not each.is_allowed] == []


def test_what_is_installed_is_what_is_locked() -> None:
    """The licences are read from what is installed."""
    assert [each for each in components() if metadata.version(each.name) != each.version] == []


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("", False),
    ],
)
def test_a_forbidden_or_unknown_licence_is_noticed(licence: str, is_allowed: bool) -> None:
    assert Component("some-package", "1.0", licence, in_image=True).is_allowed == is_allowed


def test_a_licence_nobody_has_heard_of_counts_as_unknown() -> None:
    told = Message()
    told["License"] = "Fair Trade Licence"
    assert licence_of(told) == ""


def test_the_bill_of_materials_names_what_is_in_the_image() -> None:
    bill = bill_of_materials(each for each in components() if each.in_image)
    named = {(each["name"], each["version"]) for each in bill["components"]}
    assert {(name, version) for name, version, always in locked(IMAGE_LOCK) if always} <= named
    assert all(each["licenses"][0]["expression"] for each in bill["components"])
