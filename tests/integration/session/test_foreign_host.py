"""Sessions with a host of another make: what its odd answers prove, what they cost, and what people are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import outcomes, send

pytestmark = pytest.mark.mariadb


def test_a_host_of_another_make_gets_each_change_once_and_in_order(foreign: ForeignStage) -> None:
    ids = [foreign.world.record(f"u{number}") for number in range(5)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 5
    assert foreign.applied_ids() == ids
    foreign.check_clean()


def test_answers_in_chunks_are_read(foreign: ForeignStage) -> None:
    foreign.host.always = lambda request: replace(foreign.host.by_the_protocol(request), chunked=True)
    ids = [foreign.world.record(f"u{number}") for number in range(3)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 3
    assert len(foreign.host.connected_at) == 1
    foreign.check_clean()
