"""Whose a change is, by its source."""

from __future__ import annotations

from oldhost_sync.api.access import Caller, may_see, owns, source_of_token
from oldhost_sync.policy.limits import SOURCE_LENGTH_MAX
from oldhost_sync.settings import Role


def test_two_long_names_that_begin_alike_have_two_sources() -> None:
    names = ["a" * 63 + end for end in "bc"]
    sources = {source_of_token(name) for name in names}
    assert len(sources) == 2
    assert all(len(source) == SOURCE_LENGTH_MAX for source in sources)


def test_a_name_that_fits_is_the_source_as_before() -> None:
    assert source_of_token("shop") == "api:shop"
    assert source_of_token("a" * 60) == "api:" + "a" * 60


def test_an_application_owns_what_its_name_says_and_nothing_else() -> None:
    shop = Caller("shop", Role.APP)
    assert owns(shop, "api:shop")
    assert not owns(shop, "api:shop2")
    assert not may_see(shop, "api:shop2")
    assert may_see(shop, "python")
    assert not owns(shop, "python")
