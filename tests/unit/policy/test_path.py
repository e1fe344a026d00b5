"""How much somebody reads who follows one change through the machine: it does not grow unnoticed."""

from __future__ import annotations

from tests.simulation.path import length, path_of_one_change


def test_the_path_of_one_change_is_no_longer_than_measured() -> None:
    _, files, returns = length(path_of_one_change())
    assert (files <= 17, returns <= 65) == (True, True), (files, returns)
