"""How much somebody reads who follows one change through the machine: few files, and few returns to one of them."""

from __future__ import annotations

from tests.simulation.path import length, path_of_one_change


def test_one_change_passes_through_few_files_and_seldom_comes_back() -> None:
    _, files, returns = length(path_of_one_change())
    assert (files <= 12, returns <= 40) == (True, True), (files, returns)
