from __future__ import annotations

import pytest

from tests.unit.policy.play import Play


@pytest.fixture
def play() -> Play:
    """A machine with an open session."""
    play = Play()
    play.end_open()
    return play
