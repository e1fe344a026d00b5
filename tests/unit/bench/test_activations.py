"""The benchmark's writer goes through all that it measures, whatever waits."""

from __future__ import annotations

import pytest

from bench.activations import SHAPES, play


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_meets_every_event(shape: str) -> None:
    happened = play(SHAPES[shape](30))

    met = {"a session opens", "a ban begins", "the ban is over", "a halt", "it is resolved", "a run begins"}
    assert met <= set(happened)
